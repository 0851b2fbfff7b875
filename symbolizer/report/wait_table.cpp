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

}  // namespace

WaitSums sum_waits(const Selection& selection) {
  const Tables& tables = selection.tables();
  const Waits& waits = selection.analysis.counts().recorded_waits();
  const bool all = selection.options.compiles.empty();
  WaitSums sums;
  std::map<std::tuple<WaitKind, FrameId, std::string_view>, WaitRow> rows;
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    if (wait.kind == WaitKind::kNone) continue;
    if (!all && std::find(selection.compiles.begin(), selection.compiles.end(),
                          waits.owner(i).compile) == selection.compiles.end())
      continue;
    const std::uint64_t ns = wait.length_ns - wait.runnable_ns;
    sums.runnable_ns += wait.runnable_ns;
    if (wait.kind == WaitKind::kPreempted) continue;
    const auto kind = static_cast<std::size_t>(wait.kind);
    sums.ns[kind] += ns;
    sums.count[kind] += wait.count;
    sums.all_ns += ns;
    if (wait.stack != 0) sums.with_stack_ns += ns;
    FrameId frame = 0;
    const bool has_frame = Waits::place_of(tables, wait.stack, frame);
    const std::string_view comm = tables.strings[tables.threads[wait.thread].comm];
    WaitRow& row = rows[{wait.kind, has_frame ? frame : 0, comm}];
    row.kind = wait.kind;
    row.thread = wait.thread;
    row.frame = frame;
    row.has_frame = has_frame;
    row.ns += ns;
    row.count += wait.count;
  }
  for (auto& [key, row] : rows) sums.rows.push_back(row);
  std::stable_sort(sums.rows.begin(), sums.rows.end(),
                   [](const WaitRow& a, const WaitRow& b) { return a.ns > b.ns; });
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
  std::vector<std::size_t> order;
  for (std::size_t kind = 0; kind < kWaitKinds; ++kind)
    if (sums.ns[kind] > 0) order.push_back(kind);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sums.ns[a] > sums.ns[b]; });
  for (std::size_t kind : order)
    kinds += fmt::format("{}{} {:.2f} s ({} times)", kinds.empty() ? "" : ", ",
                         wait_kind_text(static_cast<WaitKind>(kind)), seconds(sums.ns[kind]),
                         grouped(sums.count[kind]));
  append_comment(out, "For: " + kinds + ".");
  out += "#\n";
  out += fmt::format("# {:>9} {:>9}  {:<10}  {:<15}  {}\n", "Wait s", "Times", "For", "Thread",
                     "Where");
  const std::vector<std::string> commands = thread_commands(selection.tables());
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < sums.rows.size(); ++i) {
    const WaitRow& row = sums.rows[i];
    if (i >= kRows || row.ns * 1000 < sums.all_ns) {
      left_out = sums.rows.size() - i;
      break;
    }
    const std::string& comm = commands[row.thread];
    std::string where = "(no stack)";
    if (row.has_frame) where = place_text(selection.attribution().frames()[row.frame], 46);
    out += fmt::format("  {:>9.3f} {:>9}  {:<10}  {}  {}\n", seconds(row.ns), grouped(row.count),
                       wait_kind_text(row.kind), cell(comm, 15), where);
  }
  if (left_out > 0)
    append_comment(out, fmt::format("{} more places have less time.", grouped(left_out)));
}

}  // namespace dynprof
