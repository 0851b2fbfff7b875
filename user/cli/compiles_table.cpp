#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <numeric>

#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"
#include "user/cli/cmd_compiles.h"

namespace dynprof {
namespace {

// Longer than any that torch gives.
constexpr std::size_t kMaxLabel = 30;
constexpr std::size_t kLeastFunction = 10;
constexpr std::size_t kMaxDetailLines = 6;
constexpr std::size_t kMaxApart = 50;  // graph breaks of no known compile

// The columns of `report`, as far as torch's own record distinguishes them.
struct Column {
  std::string title;
  PhaseGroup group;
  std::size_t width() const { return title.size() + 1; }
};

struct Layout {
  std::vector<Column> columns;
  std::size_t label_width = 8;
  std::size_t function_width = 0;
};

GroupTimes times_of(const HistoryRow& row) {
  GroupTimes times;
  for (const HistoryPhase& phase : row.phases)
    times.add(phase.phase, static_cast<std::uint64_t>(std::max(0.0, phase.self_s) * 1e9));
  auto count = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
  times.answer_from(cache_answer(count(row.cache.fx_hits), count(row.cache.fx_misses),
                                 count(row.cache.aot_hits), count(row.cache.aot_misses)));
  times.join_kernel();
  return times;
}

std::string label_of(const HistoryRow& row) {
  std::string id = row.trace_id.empty() ? "-" : row.trace_id;
  if (auto attempt = row.attempt.value_or(0); attempt > 0) id += fmt::format("_{}", attempt);
  if (row.kind == CompileKind::kBackward) return "backward " + id;
  if (row.kind == CompileKind::kExport) return "export " + id;
  return id;
}

std::string place_of(const std::string& function, const std::string& file,
                     std::optional<std::int64_t> line, std::size_t width) {
  std::string place = fmt::format(" {}", base_name(file));
  if (line) place += fmt::format(":{}", *line);
  place = cut(place, width * 2 / 3, true);
  return cut(function, width - display_width(place), true) + place;
}

// The time of day on this machine, or the day when that was another.
std::string started(const HistoryRow& row) {
  if (!row.start_us) return "-";
  std::time_t begin = *row.start_us / 1'000'000;
  std::time_t now = std::time(nullptr);
  std::tm local{};
  if (!localtime_r(&begin, &local)) return "-";
  std::array<char, 32> text{};
  const char* format = now - begin > 20 * 3600 || begin > now ? "%b %d" : "%H:%M:%S";
  return {text.data(), std::strftime(text.data(), text.size(), format, &local)};
}

std::string shares_of(const HistoryRow& row, const Layout& layout) {
  const GroupTimes times = times_of(row);
  std::string text;
  const double wall = row.wall_s();
  for (const Column& column : layout.columns) {
    const double share = static_cast<double>(times.of(column.group)) * 1e-9;
    text += fmt::format(
        "{:>{}}",
        wall <= 0 || share <= 0 ? "-" : fmt::format("{:.0f}%", 100 * std::min(1.0, share / wall)),
        column.width());
  }
  return text;
}

Layout lay_out(const CompileHistory& history) {
  using enum PhaseGroup;
  Layout layout;
  std::array<bool, kPhaseGroups> used{};
  for (const HistoryRow& row : history.rows) {
    const GroupTimes times = times_of(row);
    for (std::size_t i = 0; i < kPhaseGroups; ++i) used[i] |= times.ns[i] * 200 > times.whole();
    layout.label_width = std::max(layout.label_width, display_width(cut(label_of(row), kMaxLabel)));
  }
  std::size_t taken = 2 + layout.label_width + 1 + 9 + 8 + 5 + 7;
  for (PhaseGroup group : {kDynamo, kAot, kInductor, kAutotune, kCache, kOther}) {
    const bool always = group == kDynamo || group == kAot || group == kInductor;
    if (!always && !used[static_cast<std::size_t>(group)]) continue;
    std::string title = phase_group_name(group).column;
    if (group == kInductor) title += std::string("+") + phase_group_name(kKernel).column;
    Column column{std::move(title), group};
    if (!always && taken + column.width() + kLeastFunction > kReportColumns) continue;
    taken += column.width();
    layout.columns.push_back(std::move(column));
  }
  layout.function_width = kReportColumns - std::min(taken, kReportColumns - kLeastFunction);
  return layout;
}

const char* cache_word(const CacheUse& cache) {
  std::int64_t hits = cache.fx_hits + cache.aot_hits;
  std::int64_t misses = cache.fx_misses + cache.aot_misses;
  if (hits == 0) return misses == 0 ? "-" : "miss";
  return misses == 0 ? "hit" : "part";
}

void append_detail(std::string& out, std::string_view word, std::string_view text) {
  append_wrapped(out, fmt::format("      {}: ", word), "        ", text, kMaxDetailLines);
}

void append_break(std::string& out, const HistoryBreak& cause) {
  std::string word = "graph break";
  if (!cause.stack.empty()) {
    const UserFrame& at = cause.stack.back();
    word += " at " + place_of(at.function, at.file, at.line, 40);
  }
  // The first line says what; hints follow.
  append_detail(out, word, cause.reason.substr(0, cause.reason.find('\n')));
}

void append_row(std::string& out, const HistoryRow& row, const CompileHistory& history,
                const Layout& layout) {
  const std::size_t width = layout.function_width;
  std::string function =
      row.function.empty() ? std::string("-") : place_of(row.function, row.file, row.line, width);
  std::string wall = row.wall_s() > 0 ? fmt::format("{:.2f}", row.wall_s()) : "-";
  out += "  " + cell(label_of(row), layout.label_width) + ' ' + cell(function, width) +
         fmt::format("{:>9}{:>8}", started(row), wall) + shares_of(row, layout) +
         fmt::format("{:>5}{:>7}\n",
                     row.graph_breaks.empty() ? std::string("-")
                                              : fmt::format("{}", row.graph_breaks.size()),
                     cache_word(row.cache));
  if (row.recompile_reason) append_detail(out, "recompiled", *row.recompile_reason);
  for (std::size_t i : row.graph_breaks) append_break(out, history.graph_breaks[i]);
  for (const std::string& reason : row.restart_reasons) {
    bool shown = std::any_of(row.graph_breaks.begin(), row.graph_breaks.end(), [&](std::size_t i) {
      return history.graph_breaks[i].reason == reason;
    });
    if (!shown) append_detail(out, "restarted", reason);
  }
  if (row.fail_type || row.fail_reason) {
    append_detail(out, "failed",
                  fmt::format("{}: {}", row.fail_type.value_or(""), row.fail_reason.value_or("")));
  }
  if (row.cudagraph_skip_reason) append_detail(out, "no CUDA graph", *row.cudagraph_skip_reason);
  if (row.backward_from_cache == true) {
    append_detail(out, "backward", "loaded from the cache too: it was not compiled");
  }
}

void append_head(std::string& out, const CompileHistory& history) {
  double wall = 0;
  for (const HistoryRow& row : history.rows) wall += row.wall_s();
  append_comment(out, fmt::format("Process {}, torch {}, Python {}: {} compiles, {:.2f} s.",
                                  history.pid, history.torch.empty() ? "?" : history.torch,
                                  history.python, history.rows.size(), wall));
  if (!history.dynamo_imported) {
    append_comment(out, "torch._dynamo is not imported: torch.compile was not used.");
  }
  if (history.rows_dropped) {
    append_comment(out, "torch keeps only the most recent compiles: there were more before.");
  }
}

}  // namespace

std::string compiles_table(const CompileHistory& history) {
  std::string out;
  append_head(out, history);
  if (!history.rows.empty()) {
    std::vector<const HistoryRow*> rows;
    for (const HistoryRow& row : history.rows) rows.push_back(&row);
    std::stable_sort(rows.begin(), rows.end(), [](const HistoryRow* a, const HistoryRow* b) {
      return a->start_us.value_or(0) < b->start_us.value_or(0);
    });
    const Layout layout = lay_out(history);
    append_comment(out,
                   "Shares of wall time by torch's own records, which do not separate Inductor's "
                   "lowering from the compilers it runs.");
    out += "#\n# " + cell("Trace id", layout.label_width) + ' ' +
           cell("Function", layout.function_width) + fmt::format("{:>9}{:>8}", "Started", "Wall s");
    for (const Column& column : layout.columns)
      out += fmt::format("{:>{}}", column.title, column.width());
    out += fmt::format("{:>5}{:>7}\n", "Brk", "Lookup");
    for (const HistoryRow* row : rows) append_row(out, *row, history, layout);
  }
  std::vector<const HistoryBreak*> apart;
  for (const HistoryBreak& cause : history.graph_breaks) {
    if (!cause.compile) apart.push_back(&cause);
  }
  if (!apart.empty()) {
    out += "#\n";
    append_comment(out, fmt::format("Graph breaks of unknown compiles: {}", apart.size()));
    for (std::size_t i = 0; i < std::min(apart.size(), kMaxApart); ++i)
      append_break(out, *apart[i]);
    if (apart.size() > kMaxApart) append_comment(out, "--json lists the others.");
  }
  return out;
}

std::string compile_times_table(const CompileHistory& history) {
  constexpr std::size_t kName = 44;
  std::string out = "# " + cell("Function", kName) +
                    fmt::format("{:>7}{:>11}  {}\n", "Calls", "Total s", "Runtimes (s)");
  for (const TimedFunction& timed : history.times) {
    double total = std::accumulate(timed.seconds.begin(), timed.seconds.end(), 0.0);
    std::string runtimes;
    for (double s : timed.seconds) {
      if (runtimes.size() > kReportColumns) break;
      runtimes += fmt::format("{}{:.4f}", runtimes.empty() ? "" : ", ", s);
    }
    std::string line = "  " + cell(timed.name, kName) +
                       fmt::format("{:>7}{:>11.4f}  {}", timed.calls, total, runtimes);
    out += truncate_columns(line, kReportColumns) + '\n';
  }
  return out;
}

}  // namespace dynprof
