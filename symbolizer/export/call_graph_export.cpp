// Call graphs as files: DOT text, and the picture that Graphviz draws of it.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "symbolizer/base/cap_text.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/export/call_graph.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/export/graphviz.h"

namespace dynprof {
namespace {

std::string dot_of(const ExportRequest& request) {
  const Analysis& analysis = request.analysis;
  const Attribution& attribution = analysis.attribution();
  const bool whole = request.compiles.empty();
  std::string title = cap_text(attribution.recording().meta().command);
  if (!whole) title = "compile " + attribution.label(request.compiles.front());
  if (request.compiles.size() > 1)
    title += " and " + std::to_string(request.compiles.size() - 1) + " more";
  const Profile profile = analysis.python_only(request.counts(), whole);
  return dot_text(prune(call_graph_of(profile, analysis.functions())), title);
}

}  // namespace

Result<void> export_dot(const ExportRequest& request) { return request.write(dot_of(request)); }

// dot writes a file in memory, so that the output file is made only when there is something to write.
Result<void> export_callgraph(const ExportRequest& request) {
  const char* search = std::getenv("PATH");
  ASSIGN_OR_RETURN(const std::string dot, find_dot(search ? search : ""));
  UniqueFd svg(::memfd_create("dynprof-svg", MFD_CLOEXEC));
  if (!svg) return errno_error("cannot hold the picture in memory");
  TRY(draw_svg(dot, dot_of(request), svg.get()));

  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  std::array<char, 64 * 1024> block;
  for (off_t at = 0;;) {
    ssize_t count = ::pread(svg.get(), block.data(), block.size(), at);
    if (count < 0) return errno_error("cannot read the picture back");
    if (count == 0) return sink->finish();
    sink->write(std::string_view(block.data(), static_cast<std::size_t>(count)));
    at += count;
  }
}

}  // namespace dynprof
