#include "user/top/view.h"

#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/base/amounts.h"
#include "symbolizer/base/text.h"
#include "user/target/state_word.h"
#include "user/top/pages.h"
#include "user/top/table.h"

namespace dynprof {
namespace {

using Style = TopLine::Style;

// Less than the first, and the header is two lines; less than the second, and it is one, and there is no line of
// keys.
constexpr std::size_t kMediumHeight = 18, kSmallHeight = 10;
constexpr std::size_t kStallsShown = 3;
constexpr std::size_t kStallLines = 3;
constexpr double kOldSeconds = 1.5;  // details older than this are said to be

class Lines {
 public:
  explicit Lines(std::size_t width) : width_(width) {}
  void add(std::string_view text, Style style = Style::kPlain) {
    lines_.push_back({fit(text, width_), style});
  }
  void add(const TopTable& table, std::size_t most) {
    TopTable shown = table;
    if (shown.rows.size() > most) shown.rows.resize(most);
    Style style = Style::kHeading;
    for (std::string& line : table_lines(shown, width_)) {
      lines_.push_back({std::move(line), style});
      style = Style::kPlain;
    }
    if (table.rows.size() > most) add(fmt::format("and {} more", table.rows.size() - most));
  }
  void add_wrapped(const std::string& text, Style style, std::size_t most) {
    for (std::string& line : wrapped(text, width_, most))
      lines_.push_back({std::move(line), style});
  }
  std::size_t size() const { return lines_.size(); }
  std::vector<TopLine>& lines() { return lines_; }

 private:
  std::size_t width_;
  std::vector<TopLine> lines_;
};

std::string percent_words(const std::optional<double>& percent) {
  return percent ? fmt::format("{:.0f} %", *percent) : "-";
}

std::string count_words(std::size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string versions(const TopTarget& target) {
  std::string text = "Python " + target.python;
  if (!target.torch) return text + ", no torch";
  return text + ", torch " + (target.torch->empty() ? "?" : *target.torch);
}

std::string title(const TopState& state) {
  const TopTarget& target = state.reading.target;
  return fmt::format("Process {}: {}", target.pid, target.command);
}

std::string target_line(const TopState& state) {
  const TopTarget& target = state.reading.target;
  return fmt::format("{}; {}, up {}, CPU {}, {}", versions(target),
                     target.state == 'D' ? "blocked in the kernel" : state_word(target.state),
                     short_age(target.uptime_s), percent_words(state.cpu_percent),
                     count_words(target.threads, "thread", "threads"));
}

std::string memory_line(const TopState& state) {
  const TopTarget& target = state.reading.target;
  std::string text = "Memory " + format_bytes(target.rss_bytes);
  if (target.peak_bytes != 0) text += fmt::format(" (peak {})", format_bytes(target.peak_bytes));
  const std::size_t children = state.processes.size() + state.reading.processes_left_out;
  if (children == 0) return text + ", no child process";
  return text + fmt::format("; {}: {}, CPU {:.0f} %",
                            count_words(children, "child process", "child processes"),
                            format_bytes(state.children_rss_bytes), state.children_cpu_percent);
}

std::string cost_line(const TopState& state) {
  std::string text = "This program: CPU ";
  text += state.own_cpu_percent ? fmt::format("{:.1f} %", *state.own_cpu_percent) : "-";
  text += ", ";
  text += state.reads_per_s ? fmt::format("{:.0f} reads/s", *state.reads_per_s)
                            : fmt::format("{} reads", state.reading.own.reads);
  const double old = state.reading.time_s - state.reading.details_time_s;
  if (old > kOldSeconds) text += fmt::format("; what is below was read {} ago", short_age(old));
  return text;
}

std::string compiles_words(const TopState& state) {
  std::size_t open = 0, waiting = 0;
  for (const OpenRow& row : state.open) ++(row.compile.id.empty() ? waiting : open);
  double wall_s = 0;
  for (const FinishedCompile& row : state.reading.finished) wall_s += row.wall_s;
  std::string text = fmt::format("Compiles: {} open", open);
  if (waiting != 0)
    text +=
        fmt::format(", {} waiting for the compile lock", count_words(waiting, "thread", "threads"));
  text += fmt::format(", {}{} finished in {:.1f} s", state.reading.finished.size(),
                      state.reading.finished_dropped ? " newest" : "", wall_s);
  return text;
}

void add_warnings(Lines& out, const TopState& state, std::size_t lines_each) {
  const std::size_t shown = std::min(state.stalls.size(), kStallsShown);
  for (std::size_t i = 0; i < shown; ++i)
    out.add_wrapped(state.stalls[i], Style::kWarning, lines_each);
  if (state.stalls.size() > shown)
    out.add(fmt::format("and {} more do not advance", state.stalls.size() - shown),
            Style::kWarning);
  for (std::size_t i = 0; i < std::min(state.reading.problems.size(), kStallsShown); ++i)
    out.add("warning: " + state.reading.problems[i], Style::kWarning);
}

void add_open(Lines& out, const TopState& state, std::size_t sort, std::size_t most) {
  if (state.open.empty()) {
    out.add(state.reading.target.torch ? "No compile is open." : "torch is not imported.");
    return;
  }
  out.add(open_table(state, sort), most);
}

void add_finished(Lines& out, const TopState& state, std::size_t sort, bool details,
                  std::size_t most) {
  if (state.reading.finished.empty()) {
    out.add("No compile has finished.");
    return;
  }
  out.add(finished_table(state, sort, details), most);
}

void add_processes(Lines& out, const TopState& state, std::size_t sort, std::size_t most) {
  if (state.processes.empty()) {
    out.add("There are no child processes.");
    return;
  }
  out.add(process_table(state, sort), most);
  if (state.reading.processes_left_out != 0)
    out.add(fmt::format("and {} more that were not read", state.reading.processes_left_out));
}

std::string sampling_words(const TopFunctions& functions) {
  std::string text = fmt::format("Sampled {} times a second for {}: {} samples, {} lost",
                                 functions.frequency_hz, short_age(functions.sampled_s),
                                 format_count(functions.samples), format_count(functions.lost));
  return text + fmt::format("; %: of the last {} s; s: since sampling began", kTopWindowSeconds);
}

void add_functions(Lines& out, const TopState& state, std::size_t sort, std::size_t most) {
  const TopFunctions& functions = state.reading.functions;
  for (const std::string& problem : functions.problems)
    out.add_wrapped("warning: " + problem, Style::kWarning, kStallLines);
  if (!functions.begun) {
    if (functions.problems.empty()) out.add("Sampling begins.");
    return;
  }
  out.add(sampling_words(functions));
  if (functions.rows.empty()) {
    out.add("No Python function has run or waited.");
    return;
  }
  const TopTable table = function_table(state, sort);
  if (table.rows.empty())
    out.add("No compiled function has run or waited.");
  else
    out.add(table, most);
}

constexpr const char* kHelp[] = {
    "c        open compiles, then those that have finished",
    "f        finished compiles, with cache and reasons",
    "p        child processes",
    "t        time by function; the process is sampled from then on",
    "Tab      next page",
    "s        another order",
    "Space    freeze what is shown; nothing is read meanwhile",
    "Up Down  scroll a line; PgUp and PgDn scroll a page",
    "h ?      this page",
    "q        quit",
    "",
    "Age      since torch began the compile, all attempts together",
    "#1       the compile began again: its second attempt",
    "At       the line of your code that is traced or lowered",
    "Node     of the graph that Inductor lowers",
    "(waits)  the thread waits for the compile lock to begin a compile",
    "CPU %    100 % is one CPU",
    "self     in the function itself; all: with those it calls",
    "Compiled newest compile of the function; +2: two more of it",
};

constexpr std::size_t kUnlimited = 100'000;  // rows

void add_page(Lines& out, const TopState& state, const TopViewOptions& options) {
  const std::size_t sort = options.sort[static_cast<std::size_t>(options.page)];
  switch (options.page) {
    case TopPage::kCompiles:
      add_open(out, state, sort, kUnlimited);
      out.add("");
      add_finished(out, state, 0, false, kUnlimited);
      break;
    case TopPage::kFinished:
      add_finished(out, state, sort, true, kUnlimited);
      break;
    case TopPage::kProcesses:
      add_processes(out, state, sort, kUnlimited);
      break;
    case TopPage::kFunctions:
      add_functions(out, state, sort, kUnlimited);
      break;
    case TopPage::kHelp:
      for (const char* line : kHelp) out.add(line);
      break;
  }
}

std::string keys_line(const TopViewOptions& options) {
  const std::size_t sort = options.sort[static_cast<std::size_t>(options.page)];
  std::string order;
  if (options.page == TopPage::kCompiles) order = open_order(sort);
  if (options.page == TopPage::kFinished) order = finished_order(sort);
  if (options.page == TopPage::kProcesses) order = process_order(sort);
  if (options.page == TopPage::kFunctions) order = function_order(sort);
  std::string text = options.frozen ? "FROZEN (space resumes)  " : "";
  text += "q quit  h help  c compiles  f finished  p processes  t time";
  if (!order.empty()) text += "  s sort: " + order;
  return text;
}

}  // namespace

std::size_t sort_count(TopPage page) {
  std::size_t count = 0;
  auto name = [&](std::size_t sort) {
    switch (page) {
      case TopPage::kCompiles:
        return open_order(sort);
      case TopPage::kFinished:
        return finished_order(sort);
      case TopPage::kProcesses:
        return process_order(sort);
      case TopPage::kFunctions:
        return function_order(sort);
      case TopPage::kHelp:
        break;
    }
    return "";
  };
  while (*name(count) != '\0') ++count;
  return count;
}

std::vector<TopLine> top_screen(const TopState& state, TopViewOptions& options) {
  if (options.width == 0 || options.height == 0) return {};
  const bool medium = options.height < kMediumHeight, small = options.height < kSmallHeight;
  Lines head(options.width);
  head.add((options.frozen && small ? "FROZEN " : "") + title(state), Style::kTitle);
  if (!medium) {
    head.add(target_line(state));
    head.add(memory_line(state));
    head.add(cost_line(state));
  }
  if (!small) head.add(compiles_words(state));
  add_warnings(head, state, small ? 1 : kStallLines);
  if (!medium) head.add("");
  // At least half of the screen is for the page.
  std::vector<TopLine> screen = std::move(head.lines());
  if (screen.size() > (options.height + 1) / 2) screen.resize((options.height + 1) / 2);
  Lines page(options.width);
  add_page(page, state, options);
  const std::size_t room = options.height - screen.size() - (small ? 0 : 1);
  const std::size_t last = page.size() - std::min(page.size(), room);
  options.first_row = std::min(options.first_row, last);
  for (std::size_t i = 0; i < std::min(room, page.size()); ++i)
    screen.push_back(std::move(page.lines()[options.first_row + i]));
  if (!small) {
    while (screen.size() + 1 < options.height) screen.emplace_back();
    screen.push_back({fit(keys_line(options), options.width), Style::kTitle});
  }
  return screen;
}

std::string top_text(const TopState& state, std::size_t width) {
  Lines out(width);
  out.add(title(state));
  out.add(target_line(state));
  out.add(memory_line(state));
  out.add(cost_line(state));
  out.add(compiles_words(state));
  add_warnings(out, state, 2 * kStallLines);
  out.add("");
  add_open(out, state, 0, kBatchRows);
  out.add("");
  add_finished(out, state, 0, true, kBatchRows);
  out.add("");
  add_processes(out, state, 0, kBatchRows);
  if (state.reading.functions.asked) {
    // Those that compute, and those that wait: few functions do both.
    for (std::size_t sort : {std::size_t{0}, std::size_t{2}, kRegionsSort}) {
      out.add("");
      out.add(sort == kRegionsSort ? "Compiled functions by CPU all %"
                                   : fmt::format("Functions by {}", function_order(sort)));
      add_functions(out, state, sort, kBatchFunctions);
    }
  }
  std::string text;
  for (const TopLine& line : out.lines()) text += line.text + '\n';
  return text;
}

}  // namespace dynprof
