#include <gtest/gtest.h>

#include "user/generated/merge_generated.h"

namespace dynprof {
namespace {

GeneratedFile file(const char* id, const char* content,
                   GeneratedKind kind = GeneratedKind::kWrapper) {
  GeneratedFile file;
  file.trace_id = id;
  file.content = content;
  file.kind = kind;
  file.name = id[0] == 0 ? "unknown.py" : "known.py";
  return file;
}

std::vector<std::string> merged(std::vector<GeneratedFile> before, std::vector<GeneratedFile> now,
                                GeneratedLimits limits = {}) {
  std::vector<std::string> found;
  for (const GeneratedFile& one :
       merge_generated({std::move(before), {}}, {std::move(now), {}}, limits).files)
    found.push_back(one.trace_id + ":" + one.content + ":" + one.name);
  return found;
}
using List = std::vector<std::string>;

TEST(MergeGenerated, FreedFilesAreKept) {
  EXPECT_EQ(merged({file("0/0", "a"), file("", "b")}, {file("0/1", "c")}),
            (List{"0/1:c:known.py", "0/0:a:known.py", ":b:unknown.py"}));
}

TEST(MergeGenerated, AnIdOnceKnownIsKept) {
  EXPECT_EQ(merged({file("0/0", "a")}, {file("", "a")}), (List{"0/0:a:known.py"}));
  EXPECT_EQ(merged({file("", "a")}, {file("0/0", "a")}), (List{"0/0:a:known.py"}));
}

TEST(MergeGenerated, EqualTextsOfTwoCompilesAreTwoFiles) {
  EXPECT_EQ(merged({file("0/0", "a")}, {file("0/1", "a")}),
            (List{"0/1:a:known.py", "0/0:a:known.py"}));
  EXPECT_EQ(merged({file("0/0", "a", GeneratedKind::kGuards)}, {file("0/0", "a")}).size(), 2u);
}

TEST(MergeGenerated, GuardsWithReasonsReplaceThoseWithout) {
  GeneratedFile bare = file("0/0", "# All hold\na == 2\nb\n", GeneratedKind::kGuards);
  GeneratedFile whole = file("0/0", "# All hold\na == 2  # x * a\nb\n", GeneratedKind::kGuards);
  List expected = {"0/0:" + whole.content + ":known.py"};
  EXPECT_EQ(merged({bare}, {whole}), expected);
  EXPECT_EQ(merged({whole}, {bare}), expected);
  // Of other kinds a comment is content.
  bare.kind = whole.kind = GeneratedKind::kWrapper;
  EXPECT_EQ(merged({bare}, {whole}).size(), 2u);
}

TEST(MergeGenerated, StaysWithinTheLimits) {
  GeneratedLimits limits;
  limits.files = 2;
  EXPECT_EQ(merged({file("0/0", "a"), file("0/0", "b")}, {file("0/1", "c")}, limits).size(), 2u);
  limits.files = 10;
  limits.total_bytes = 4;
  EXPECT_EQ(merged({file("0/0", "aaaa"), file("0/0", "b")}, {file("0/1", "c")}, limits),
            (List{"0/1:c:known.py", "0/0:b:known.py"}));
}

}  // namespace
}  // namespace dynprof
