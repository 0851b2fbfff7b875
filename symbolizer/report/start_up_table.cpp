// The report's part about start-up.
#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/attribution/start_up.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string sums_text(const StartUp& start_up) {
  std::vector<StartUpPart> order;
  for (std::size_t i = 0; i < kStartUpParts; ++i)
    if (start_up.ns[i] > 0) order.push_back(static_cast<StartUpPart>(i));
  std::stable_sort(order.begin(), order.end(),
                   [&](StartUpPart a, StartUpPart b) { return start_up.of(a) > start_up.of(b); });
  std::string text;
  for (StartUpPart part : order)
    text += fmt::format("{}{} {:.2f} s", text.empty() ? "" : ", ", start_up_text(part),
                        seconds(start_up.of(part)));
  return text;
}

}  // namespace

void append_start_up(std::string& out, const Selection& selection) {
  for (const StartUp& start_up : selection.analysis.start_ups()) {
    const bool compiled = start_up.of(StartUpPart::kCompile) > 0;
    const char* until = start_up.first_step_seen ? "the second step without a compile"
                        : compiled               ? "the end of the last compile"
                                                 : "the end of the recording";
    append_comment(out, fmt::format("Start-up of process {}, its main thread: {:.2f} s to {}. {}",
                                    start_up.pid, seconds(start_up.end_ns - start_up.begin_ns),
                                    until, sums_text(start_up)));
    out += "#\n#    At s    For s  What\n";
    for (const StartUpSlice& slice : start_up.slices)
      out += fmt::format("{:>9.2f}{:>9.2f}  {}\n", seconds(slice.begin_ns - start_up.begin_ns),
                         seconds(slice.end_ns - slice.begin_ns), start_up_text(slice.part));
    out += "#\n";
  }
}

}  // namespace dynprof
