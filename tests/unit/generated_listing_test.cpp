#include <gtest/gtest.h>

#include <string>

#include "symbolizer/python/python_version.h"
#include "user/generated/code_listing.h"
#include "user/generated/opcodes.h"

namespace dynprof {
namespace {

constexpr std::uint16_t k310 = python_version(3, 10);
constexpr std::uint16_t k311 = python_version(3, 11);
constexpr std::uint16_t k312 = python_version(3, 12);
constexpr std::uint16_t k313 = python_version(3, 13);
constexpr std::uint16_t k314 = python_version(3, 14);
constexpr std::uint16_t k315 = python_version(3, 15);

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (int value : values) text += static_cast<char>(value);
  return text;
}

TEST(GeneratedOpcodes, EachVersionHasItsOwn) {
  ASSERT_TRUE(opcode_table(k310));
  EXPECT_EQ((*opcode_table(k310))[131].name, "CALL_FUNCTION");
  EXPECT_EQ((*opcode_table(k311))[116].name, "LOAD_GLOBAL");
  EXPECT_EQ((*opcode_table(k311))[116].caches, 5);
  EXPECT_EQ((*opcode_table(k313))[91].name, "LOAD_GLOBAL");
  EXPECT_EQ((*opcode_table(k313))[91].caches, 4);
  EXPECT_EQ((*opcode_table(k310))[200].name, "");
  EXPECT_FALSE(opcode_table(python_version(3, 9)));
  EXPECT_EQ((*opcode_table(k314))[84].name, "LOAD_FAST");
  EXPECT_EQ((*opcode_table(k315))[80].name, "LOAD_COMMON_CONSTANT");
  EXPECT_EQ((*opcode_table(k315))[42].caches, 5);
  EXPECT_FALSE(opcode_table(python_version(3, 16)));
}

TEST(GeneratedOpcodes, SpecializedOnesAreTheOriginals) {
  EXPECT_EQ((*opcode_table(k311))[47].name, "LOAD_GLOBAL");  // LOAD_GLOBAL_BUILTIN
  EXPECT_EQ((*opcode_table(k311))[47].caches, 5);
  EXPECT_EQ((*opcode_table(k312))[241].name, "CALL");  // INSTRUMENTED_CALL
  EXPECT_EQ((*opcode_table(k312))[241].caches, 3);
}

// LOAD_GLOBAL __compiled_fn_1 + NULL, its five cache units, CALL of it, RETURN_VALUE.
CodeBody call_of_a_graph() {
  CodeBody body;
  body.python = k311;
  body.bytecode = bytes(
      {116, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 166, 0, 0, 0, 171, 0, 0, 0, 0, 0, 0, 0, 0, 0, 83, 0});
  body.names = {"x", "__compiled_fn_1"};
  body.first_line = 7;
  return body;
}

TEST(GeneratedListing, SkipsCachesAndNamesArguments) {
  auto found = decode_instructions(call_of_a_graph());
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].opcode, "LOAD_GLOBAL");
  EXPECT_EQ(found[0].meaning, "__compiled_fn_1");
  EXPECT_EQ(found[1].offset, 12u);
  EXPECT_EQ(found[1].opcode, "PRECALL");
  EXPECT_EQ(found[2].offset, 16u);
  EXPECT_EQ(found[3].opcode, "RETURN_VALUE");
  std::string text = list_instructions(found);
  EXPECT_NE(text.find("LOAD_GLOBAL                        3  __compiled_fn_1\n"), std::string::npos)
      << text;
}

TEST(GeneratedListing, ExtendsArguments) {
  CodeBody body;
  body.python = k310;
  body.bytecode = bytes({144, 1, 100, 2, 100, 3, 110, 1, 83, 0, 83, 0});
  body.constants.assign(259, "None");
  body.constants[258] = "'far'";
  auto found = decode_instructions(body);
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[1].argument, 258u);
  EXPECT_EQ(found[1].meaning, "'far'");
  EXPECT_EQ(found[2].argument, 3u);
  EXPECT_EQ(found[3].meaning, "to 10");
}

TEST(GeneratedListing, ReadsTwoLocalsOfOneArgument) {
  CodeBody body;
  body.python = k313;
  body.bytecode = bytes({88, 0x12});
  body.locals = {"a", "b", "c"};
  auto found = decode_instructions(body);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].meaning, "b, c");
}

TEST(GeneratedListing, CellsOf310ComeAfterItsVariables) {
  CodeBody body;
  body.python = k310;
  body.bytecode = bytes({136, 1});
  body.locals = {"variable", "cell", "free"};
  body.variables = 1;
  EXPECT_EQ(decode_instructions(body).at(0).meaning, "free");
}

TEST(GeneratedListing, AnyBytesGiveAnAnswer) {
  for (std::uint16_t python : {k310, k311, k312, k313, k314, k315}) {
    CodeBody body;
    body.python = python;
    for (int i = 0; i < 256; ++i) {
      for (int argument : {0, 255}) body.bytecode += bytes({i, argument});
    }
    body.bytecode += 'x';  // half a unit
    body.line_table = std::string(64, '\xff');
    auto found = decode_instructions(body);
    EXPECT_GT(found.size(), 100u);
    EXPECT_FALSE(list_instructions(found).empty());
    EXPECT_LT(found.back().offset, 1024u);
  }
  CodeBody unknown = call_of_a_graph();
  unknown.python = python_version(3, 16);
  EXPECT_TRUE(decode_instructions(unknown).empty());
}

}  // namespace
}  // namespace dynprof
