#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <numeric>

#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"
#include "user/cli/cmd_compiles.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxLabel = 24;
constexpr std::size_t kMaxApart = 50;  // graph breaks of no known compile

// Shares of the wall time; what no column names is in none.
struct Column {
  const char* title;
  std::uint32_t phases;  // bit per Phase
};
constexpr std::uint32_t bit(Phase phase) { return 1u << static_cast<unsigned>(phase); }
constexpr Column kColumns[] = {
    {"dynamo", bit(Phase::kDynamo) | bit(Phase::kGuards)},
    {"aot", bit(Phase::kAotAutograd)},
    {"induct", bit(Phase::kInductor) | bit(Phase::kAutotune)},
    {"kernel", bit(Phase::kKernelCompile) | bit(Phase::kWait)},
};

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

std::string shares_of(const HistoryRow& row) {
  std::string text;
  double wall = row.wall_s();
  for (const Column& column : kColumns) {
    double share = 0;
    for (const HistoryPhase& phase : row.phases) {
      if (column.phases & bit(phase.phase)) share += phase.self_s;
    }
    text += wall <= 0 || share <= 0 ? fmt::format("{:>7}", "-")
                                    : fmt::format("{:>6.0f}%", 100 * std::min(1.0, share / wall));
  }
  return text;
}

const char* cache_word(const CacheUse& cache) {
  std::int64_t hits = cache.fx_hits + cache.aot_hits;
  std::int64_t misses = cache.fx_misses + cache.aot_misses;
  if (hits == 0) return misses == 0 ? "-" : "miss";
  return misses == 0 ? "hit" : "part";
}

// "      word: text" in one line.
void append_detail(std::string& out, std::string_view word, std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 4 * kReportColumns));
  std::replace(text.begin(), text.end(), '\n', ' ');
  auto end =
      std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; });
  text.erase(end, text.end());
  out += cut(fmt::format("      {}: {}", word, text), kReportColumns) + '\n';
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
                std::size_t label_width) {
  std::size_t width = kReportColumns - 2 - label_width - 1 - 9 - 8 - 7 * std::size(kColumns) - 11;
  std::string function =
      row.function.empty() ? std::string("-") : place_of(row.function, row.file, row.line, width);
  std::string wall = row.wall_s() > 0 ? fmt::format("{:.2f}", row.wall_s()) : "-";
  out += "  " + cell(label_of(row), label_width) + ' ' + cell(function, width) +
         fmt::format("{:>9}{:>8}", started(row), wall) + shares_of(row) +
         fmt::format("{:>5}{:>6}\n",
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
    std::size_t label_width = 8;
    for (const HistoryRow& row : history.rows) {
      rows.push_back(&row);
      label_width = std::max(label_width, display_width(cut(label_of(row), kMaxLabel)));
    }
    std::stable_sort(rows.begin(), rows.end(), [](const HistoryRow* a, const HistoryRow* b) {
      return a->start_us.value_or(0) < b->start_us.value_or(0);
    });
    std::size_t width = kReportColumns - 2 - label_width - 1 - 9 - 8 - 7 * std::size(kColumns) - 11;
    out += "#\n# " + cell("Trace id", label_width) + ' ' + cell("Function", width) +
           fmt::format("{:>9}{:>8}", "Started", "Wall s");
    for (const Column& column : kColumns) out += fmt::format("{:>7}", column.title);
    out += fmt::format("{:>5}{:>6}\n", "Brk", "Cache");
    for (const HistoryRow* row : rows) append_row(out, *row, history, label_width);
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
