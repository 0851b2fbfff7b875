// The model as lines of text for a screen of a given size, or as text without an end. Every line is escaped and
// no wider than the screen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "user/top/model.h"

namespace dynprof {

enum class TopPage : std::uint8_t { kCompiles, kFinished, kProcesses, kFunctions, kHelp };
inline constexpr std::size_t kTopPages = 5;

struct TopViewOptions {
  TopPage page = TopPage::kCompiles;
  std::array<std::size_t, kTopPages> sort{};  // which order of each page, see sort_count()
  bool frozen = false;
  std::size_t first_row = 0;  // of the page, for what does not fit the screen
  std::size_t width = 80;
  std::size_t height = 24;
};

struct TopLine {
  enum class Style : std::uint8_t { kPlain, kTitle, kHeading, kWarning };
  std::string text;
  Style style = Style::kPlain;
};

// At most `height` lines. `first_row` is brought into range.
std::vector<TopLine> top_screen(const TopState& state, TopViewOptions& options);
// Everything there is to show, for a pipe: at most kBatchRows rows a table.
inline constexpr std::size_t kBatchRows = 40, kBatchFunctions = 20;
std::string top_text(const TopState& state, std::size_t width);

std::size_t sort_count(TopPage page);

}  // namespace dynprof
