// docs/…/recording-format.md lists the kinds of chunks that chunk_list.h lists, and describes each.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "symbolizer/recording/format.h"

namespace dynprof {
namespace {

using testing::HasSubstr;

// Wherever in docs/ the page is. The tests run in the root of the tree.
std::string document() {
  for (const auto& entry : std::filesystem::recursive_directory_iterator("docs")) {
    if (entry.path().filename() != "recording-format.md") continue;
    std::ifstream file(entry.path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ADD_FAILURE() << "no recording-format.md below docs/";
  return {};
}

TEST(RecordingDocument, HasTheTableOfKinds) {
  std::map<int, std::string> rows;
#define DYNPROF_TABLE(kind, number, name, ...) \
  rows[number] = fmt::format("| {} | {} | table |\n", number, name);
#define DYNPROF_LIST(kind, number, name, ...) \
  rows[number] = fmt::format("| {} | {} | list |\n", number, name);
  DYNPROF_TABLES(DYNPROF_TABLE)
  DYNPROF_LISTS(DYNPROF_LIST)
#undef DYNPROF_TABLE
#undef DYNPROF_LIST
  rows[1] = "| 1 | meta | JSON |\n";
  rows[10] = "| 10 | samples | |\n";
  rows[11] = "| 11 | trailer | JSON |\n";
  rows[12] = "| 12 | end mark | empty; `first` is the number of samples in the file |\n";
  std::string table = "|---|---|---|\n";
  for (const auto& [number, row] : rows) table += row;
  EXPECT_THAT(document(), HasSubstr(table + "\n"));
}

TEST(RecordingDocument, DescribesEachKindAndNamesTheVersion) {
  const std::string text = document();
#define DYNPROF_KIND(kind, number, name, ...)                                                \
  EXPECT_TRUE(text.find("\n**" name "**") != std::string::npos ||                            \
              text.find("\n**" name ", ") != std::string::npos || /* strings, line tables */ \
              text.find(", " name "**") != std::string::npos)                                \
      << name;
  DYNPROF_TABLES(DYNPROF_KIND)
  DYNPROF_LISTS(DYNPROF_KIND)
#undef DYNPROF_KIND
  EXPECT_THAT(text, HasSubstr(fmt::format("| version: {} |", recording::kVersion)));
}

}  // namespace
}  // namespace dynprof
