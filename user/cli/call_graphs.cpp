#include "user/cli/call_graphs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace dynprof {

using Clock = std::chrono::steady_clock;

CallGraphs::CallGraphs(const OutputDirectory& directory, Terminal& terminal,
                       const CallGraphLimits& limits)
    : directory_(directory),
      terminal_(terminal),
      limits_(limits),
      deadline_(Clock::now() + limits.time) {
  const char* path = std::getenv("PATH");
  auto tools = find_callgraph_tools(path ? path : "");
  if (tools)
    tools_ = *tools;
  else
    terminal_.line("note: " + tools.error().what);
}

void CallGraphs::draw(const std::string& stem) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
  if (drawn_ + failed_ >= limits_.count || left.count() <= 0) {
    left_out_++;
    return;
  }
  terminal_.progress(fmt::format("call graph of {}", stem));
  CallgraphOptions options;
  options.timeout = std::min(options.timeout, left);
  auto written = [&]() -> Result<void> {
    ASSIGN_OR_RETURN(UniqueFd profile, directory_.readable(stem + ".profile"));
    ASSIGN_OR_RETURN(UniqueFd svg, directory_.plain_file(stem + ".svg"));
    auto done = write_callgraph(*tools_, profile.get(), svg.get(), options);
    if (!done) unlinkat(directory_.fd(), (stem + ".svg").c_str(), 0);
    return done;
  }();
  if (written) {
    drawn_++;
    return;
  }
  failed_++;
  terminal_.line(fmt::format("note: no call graph of {}: {}", stem, written.error().what));
}

bool CallGraphs::finish() {
  terminal_.clear_progress();
  if (left_out_ > 0)
    terminal_.line(fmt::format(
        "note: {} call graphs were left out (limits: {} of them, {} s for all); of one compile: "
        "dynprof-bpf export DIR -f callgraph --compile ID -o FILE.svg",
        left_out_, limits_.count, limits_.time.count() / 1000));
  return failed_ == 0 && left_out_ == 0;
}

}  // namespace dynprof
