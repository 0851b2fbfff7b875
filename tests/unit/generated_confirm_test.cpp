#include <gtest/gtest.h>

#include "user/generated/confirm_generated.h"

namespace dynprof {
namespace {

GeneratedFile file(const char* id, const char* content, const char* name = "") {
  GeneratedFile file;
  file.trace_id = id;
  file.content = content;
  file.name = name;
  return file;
}

GeneratedCode confirmed(std::vector<GeneratedFile> first, std::vector<GeneratedFile> second) {
  return confirm_generated({std::move(first), {"of the first"}},
                           {std::move(second), {"of the second"}});
}
using List = std::vector<std::string>;

TEST(ConfirmGenerated, KeepsWhatBothLooksFoundAsTheSecondNamesIt) {
  GeneratedCode code = confirmed({file("0/0", "a", "wrapper_2.py"), file("", "b")},
                                 {file("0/0", "a", "wrapper.py")});
  ASSERT_EQ(code.files.size(), 1u);
  EXPECT_EQ(code.files[0].name, "wrapper.py");
  EXPECT_EQ(code.missing, List{"of the second"});
}

// A text read when its object was free already, and one that came to life in between.
TEST(ConfirmGenerated, LeavesOutAndCountsWhatOneLookFound) {
  GeneratedCode code = confirmed({file("0/0", "another's text"), file("0/1", "b")},
                                 {file("0/0", "a"), file("0/1", "b"), file("0/2", "c")});
  ASSERT_EQ(code.files.size(), 1u);
  EXPECT_EQ(code.files[0].trace_id, "0/1");
  EXPECT_EQ(code.missing, (List{"of the second", "2 files that differed between two readings"}));
}

TEST(ConfirmGenerated, TheSameTextOfAnotherCompileOrKindConfirmsNothing) {
  EXPECT_TRUE(confirmed({file("0/0", "a")}, {file("0/1", "a")}).files.empty());
  GeneratedFile guards = file("0/0", "a");
  guards.kind = GeneratedKind::kGuards;
  EXPECT_TRUE(confirmed({file("0/0", "a")}, {guards}).files.empty());
  EXPECT_EQ(confirmed({file("", "a")}, {file("", "a"), file("", "a")}).files.size(), 1u);
}

GeneratedFile guards(const char* id, const char* content) {
  GeneratedFile file = ::dynprof::file(id, content);
  file.kind = GeneratedKind::kGuards;
  return file;
}

// A collection during one of the looks hides the objects that have the reasons.
TEST(ConfirmGenerated, GuardsKeepTheReasonsThatBothLooksFound) {
  GeneratedCode code =
      confirmed({guards("0/0", "head\na == 1  # x.py:1\nb == 2\nc == 3  # x.py:3\n")},
                {guards("0/0", "head\na == 1\nb == 2  # x.py:2\nc == 3  # x.py:3\n")});
  ASSERT_EQ(code.files.size(), 1u);
  EXPECT_EQ(code.files[0].content, "head\na == 1\nb == 2\nc == 3  # x.py:3\n");
  EXPECT_EQ(code.missing, List{"of the second"});
}

TEST(ConfirmGenerated, OtherGuardsConfirmNothing) {
  EXPECT_TRUE(confirmed({guards("0/0", "a == 1\n")}, {guards("0/0", "a == 10\n")}).files.empty());
  EXPECT_TRUE(confirmed({guards("0/0", "a\n")}, {guards("0/0", "a\nb\n")}).files.empty());
  EXPECT_TRUE(confirmed({guards("0/0", "a  # r\n")}, {guards("0/1", "a\n")}).files.empty());
  EXPECT_TRUE(confirmed({guards("0/0", "a  # r\n")}, {guards("0/0", "a  # s\n")}).files.empty());
  EXPECT_TRUE(confirmed({file("0/0", "a  # r\n")}, {file("0/0", "a\n")}).files.empty());
}

}  // namespace
}  // namespace dynprof
