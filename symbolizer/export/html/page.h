// The HTML page: one file that needs no other and no network. Everything in it is data that the
// page's script (page.js and the files beside it) shows; nothing from a recording is markup.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/result.h"

namespace dynprof {

class FlameData;
struct TimelineData;

// How the script shows and sorts a column.
enum class ColumnType : std::uint8_t {
  kText,
  kPlace,    // of code: cut on the left
  kSeconds,  // ns
  kCount,
  kPercent,  // 0 to 100, with a bar
  kChange,   // ns, with a sign
  kFactor,   // "1.25"
};

struct PageColumn {
  std::string name;
  ColumnType type = ColumnType::kText;
  std::string help{};
};

// Texts are the target's: the writer escapes them.
struct PageCell {
  enum class Kind : std::uint8_t { kUnknown, kText, kWhole, kReal };

  PageCell() = default;                                                       // shown as "-"
  PageCell(std::string value) : kind(Kind::kText), text(std::move(value)) {}  // NOLINT: implicit
  PageCell(std::int64_t value) : kind(Kind::kWhole), whole(value) {}          // NOLINT: implicit
  PageCell(double value) : kind(Kind::kReal), real(value) {}                  // NOLINT: implicit

  Kind kind = Kind::kUnknown;
  std::string text{};
  std::int64_t whole = 0;
  double real = 0;
};

// Shown below a row that is opened.
struct PageDetail {
  std::string title;
  std::vector<std::string> lines;
};

struct PageRow {
  std::vector<PageCell> cells;
  std::vector<PageDetail> details{};
  std::int64_t group = -1;  // of the flame graph; -1: it has none
  bool faint = false;       // a difference that the counts do not prove
};

struct PageTable {
  std::string id;  // ours, of letters
  std::string title;
  std::string note{};
  std::vector<PageColumn> columns{};
  std::vector<PageRow> rows{};
  std::uint64_t left_out = 0;  // rows
};

// Lines of a generated file in which time was spent, and those around them.
struct CodeLine {
  std::uint32_t number = 0;  // 0: lines are left out here
  std::uint64_t ns = 0;
  std::string text{};
};
struct CodeListing {
  std::string path;
  std::uint64_t ns = 0;
  std::vector<CodeLine> lines{};
};

struct Page {
  std::string title;
  std::vector<std::pair<std::string, std::string>> summary{};
  std::vector<PageTable> tables{};
  std::vector<CodeListing> code{};
  std::uint64_t code_left_out = 0;  // files
  std::vector<std::string> about{};
  std::vector<std::string> sides{};  // of a comparison: names of its two recordings
  const FlameData* flame = nullptr;
  const TimelineData* timeline = nullptr;
};

Result<void> write_page(const Page& page, ByteSink& sink);

// A text from a recording as the page shows it: no control characters, valid UTF-8, at most `most`
// bytes.
std::string page_text(std::string_view text, std::size_t most);

}  // namespace dynprof
