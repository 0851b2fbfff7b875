#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kRows = 15;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string place_text(const ResolvedFrame& frame, std::size_t width) {
  if (frame.kind != FrameKind::kPython)
    return cut(fmt::format("{} in {}", frame.function, base_name(frame.file)), width);
  const std::string place =
      cut(fmt::format(" {}:{}", base_name(frame.file), frame.line), width * 2 / 3, true);
  return cut(frame.function, width - display_width(place), true) + place;
}

// What a wait was for: its meaning, else the kind of system call.
std::string_view wait_text(WaitMeaning meaning, WaitKind kind) {
  return meaning == WaitMeaning::kUnknown ? wait_kind_text(kind) : wait_meaning_text(meaning);
}

}  // namespace

WaitSums sum_waits(const Selection& selection) {
  const Tables& tables = selection.tables();
  const Waits& waits = selection.analysis.counts().recorded_waits();
  const bool all = selection.options.compiles.empty();
  WaitSums sums;
  const std::vector<std::string> commands = thread_commands(tables);
  const WaitMeanings& meanings = selection.analysis.meanings();
  std::map<std::tuple<std::string_view, FrameId, std::string_view>, WaitRow> rows;
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    if (wait.kind == WaitKind::kNone) continue;
    if (!all && std::find(selection.compiles.begin(), selection.compiles.end(),
                          waits.owner(i).compile) == selection.compiles.end())
      continue;
    const std::uint64_t ns = wait.length_ns - wait.runnable_ns;
    sums.runnable_ns += wait.runnable_ns;
    if (wait.kind == WaitKind::kPreempted) continue;
    const WaitMeaning meaning = meanings.of(wait);
    const std::string_view what = wait_text(meaning, wait.kind);
    sums.by_what[what].ns += ns;
    sums.by_what[what].count += wait.count;
    sums.all_ns += ns;
    if (wait.stack != 0) sums.with_stack_ns += ns;
    FrameId frame = 0;
    const bool has_frame = Waits::place_of(tables, wait.stack, frame);
    // Threads without work are not told apart by names that Python gave them.
    const bool idle = is_idle(meaning);
    const std::string_view name = idle ? tables.strings[tables.threads[wait.thread].comm]
                                       : std::string_view(commands[wait.thread]);
    WaitRow& row = rows[{what, has_frame ? frame : 0, name}];
    row.what = what;
    row.name = std::string(name);
    row.idle = idle;
    row.frame = frame;
    row.has_frame = has_frame;
    row.ns += ns;
    row.count += wait.count;
  }
  for (auto& [key, row] : rows) sums.rows.push_back(row);
  std::stable_sort(sums.rows.begin(), sums.rows.end(), [](const WaitRow& a, const WaitRow& b) {
    return a.idle != b.idle ? b.idle : a.ns > b.ns;
  });
  return sums;
}

void append_waits(std::string& out, const Selection& selection) {
  if (selection.tables().waits.empty()) return;
  const WaitSums sums = sum_waits(selection);
  if (sums.all_ns == 0) return;
  out += "#\n";
  append_comment(
      out, fmt::format("Waits, of all threads together: {:.2f} s, {} with a stack; and {:.2f} s "
                       "runnable without a CPU.",
                       seconds(sums.all_ns), percent(sums.with_stack_ns, sums.all_ns),
                       seconds(sums.runnable_ns)));
  std::string kinds;
  std::vector<std::pair<std::string_view, WaitSums::Sum>> order(sums.by_what.begin(),
                                                                sums.by_what.end());
  std::erase_if(order, [](const auto& one) { return one.second.ns == 0; });
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  for (const auto& [what, sum] : order)
    kinds += fmt::format("{}{} {:.2f} s ({} times)", kinds.empty() ? "" : ", ", what,
                         seconds(sum.ns), grouped(sum.count));
  append_comment(out, "For: " + kinds + ".");
  out += "#\n";
  out += fmt::format("# {:>9} {:>9}  {:<13}  {:<15}  {}\n", "Wait s", "Times", "For", "Thread",
                     "Where");
  std::size_t left_out = 0, shown = 0;
  for (std::size_t i = 0; i < sums.rows.size(); ++i) {
    const WaitRow& row = sums.rows[i];
    if (shown == kRows || row.ns * 1000 < sums.all_ns) {
      ++left_out;
      continue;
    }
    ++shown;
    std::string where = "(no stack)";
    if (row.has_frame) where = place_text(selection.attribution().frames()[row.frame], 43);
    out += fmt::format("  {:>9.3f} {:>9}  {:<13}  {}  {}\n", seconds(row.ns), grouped(row.count),
                       row.what, cell(row.name, 15), where);
  }
  if (left_out > 0)
    append_comment(out, fmt::format("{} more places have less time.", grouped(left_out)));
  append_lock_waits(out, selection);
}

}  // namespace dynprof
