#include "user/cli/call_graphs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace dynprof {

using Clock = std::chrono::steady_clock;

CallGraphs::CallGraphs(const OutputDirectory& directory, std::string dot, Terminal& terminal,
                       const CallGraphLimits& limits)
    : directory_(directory),
      dot_(std::move(dot)),
      terminal_(terminal),
      limits_(limits),
      deadline_(Clock::now() + limits.time) {}

bool CallGraphs::draw(const std::string& stem, const std::function<std::string()>& graph) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
  if (drawn_ + failed_ >= limits_.count || left.count() <= 0) {
    left_out_++;
    return false;
  }
  terminal_.progress(fmt::format("call graph of {}", stem));
  DrawLimits limits;
  limits.time = std::min(limits.time, left);
  auto written = [&]() -> Result<void> {
    ASSIGN_OR_RETURN(UniqueFd svg, directory_.plain_file(stem + ".svg"));
    auto done = draw_svg(dot_, graph(), svg.get(), limits);
    if (!done) unlinkat(directory_.fd(), (stem + ".svg").c_str(), 0);
    return done;
  }();
  if (written) {
    drawn_++;
    return true;
  }
  failed_++;
  terminal_.line(fmt::format("note: no call graph of {}: {}", stem, written.error().what));
  return false;
}

void CallGraphs::finish() {
  terminal_.clear_progress();
  if (left_out_ == 0) return;
  terminal_.line(fmt::format(
      "note: {} of {} call graphs were left out (limits: {} graphs, {} s for all); to draw one: "
      "dynprof-bpf export DIR -f svg --compile ID -o FILE.svg",
      left_out_, drawn_ + failed_ + left_out_, limits_.count, limits_.time.count() / 1000));
}

}  // namespace dynprof
