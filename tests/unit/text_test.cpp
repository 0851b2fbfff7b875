#include "symbolizer/base/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace dynprof {
namespace {

TEST(Text, PrintableTextPassesTheTerminalUnchanged) {
  EXPECT_EQ(escape_terminal("Block.<locals>.forward λ \\d"), "Block.<locals>.forward λ \\d");
}

TEST(Text, ControlCharactersAreMadeVisible) {
  EXPECT_EQ(escape_terminal("a\x1b[31mb\nc\td\re\x7f"), "a\\x1b[31mb\\nc\\td\\re\\x7f");
  EXPECT_EQ(escape_terminal("\xc2\x9b"
                            "31m"),
            "\\x9b31m");  // C1 CSI
  EXPECT_EQ(escape_terminal("a\xe2\x80\xae"
                            "b"),
            "a\\u202eb");                                         // right-to-left override
  EXPECT_EQ(escape_terminal("\xed\xb2\x80"), "\\udc80");          // lone surrogate
  EXPECT_EQ(escape_terminal("\xff\xfe\x80"), "\\xff\\xfe\\x80");  // not UTF-8
  EXPECT_EQ(escape_terminal("\xf3\xa0\x80\x81"), "\\U000e0001");  // tag
  EXPECT_EQ(escape_terminal("\xc0\xaf"), "\\xc0\\xaf");           // overlong '/'
  EXPECT_EQ(escape_terminal("\xe2\x80"), "\\xe2\\x80");           // cut short
  EXPECT_EQ(escape_terminal(std::string_view("\0", 1)), "\\x00");
}

TEST(Text, TruncationCountsColumnsAndSplitsNoCodePoint) {
  EXPECT_EQ(truncate_columns("abcdef", 6), "abcdef");
  EXPECT_EQ(truncate_columns("abcdef", 5), "abcd…");
  EXPECT_EQ(truncate_columns("abcdef", 5, true), "…cdef");
  EXPECT_EQ(truncate_columns("λλλλ", 3), "λλ…");
  EXPECT_EQ(truncate_columns("λλλλ", 3, true), "…λλ");
  EXPECT_EQ(truncate_columns("ab", 1), "…");
  EXPECT_EQ(truncate_columns("ab", 0), "");
  EXPECT_EQ(display_width(truncate_columns(std::string(10000, 'x'), 100)), 100u);
}

TEST(Text, FileComponentsCannotLeaveTheirDirectory) {
  EXPECT_EQ(sanitize_file_component("_compile_inner_!1_0_0"), "_compile_inner_!1_0_0");
  EXPECT_EQ(sanitize_file_component("../../etc/passwd"), "_._.._etc_passwd");
  EXPECT_EQ(sanitize_file_component(".."), "_.");
  EXPECT_EQ(sanitize_file_component("."), "_");
  EXPECT_EQ(sanitize_file_component(""), "_");
  EXPECT_EQ(sanitize_file_component("-rf"), "_rf");
  EXPECT_EQ(sanitize_file_component(std::string_view("a\0b\n", 4)), "a_b_");
  EXPECT_EQ(sanitize_file_component(std::string(10000, 'x')).size(), 100u);
}

TEST(Text, BytesThatAreNotUtf8CanBeShownAsText) {
  EXPECT_EQ(backslash_escaped("aλ\n\xff\xed\xb2\x80\x1b"), "aλ\n\\xff\\udc80\x1b");
}

TEST(Text, JsonStaysValidWhateverTheBytes) {
  EXPECT_EQ(json_escape("a\"b\\c\n\x01"), "a\\\"b\\\\c\\u000a\\u0001");
  EXPECT_EQ(json_escape("λ"), "λ");
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  every_byte += "\xed\xb2\x80";
  auto parsed = nlohmann::json::parse("\"" + json_escape(every_byte) + "\"");
  EXPECT_EQ(parsed.get<std::string>(), valid_utf8(every_byte));
}

}  // namespace
}  // namespace dynprof
