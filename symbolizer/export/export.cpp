#include "symbolizer/export/export.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "symbolizer/base/gzip.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/callgraph.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/compiles_json.h"
#include "symbolizer/export/folded.h"
#include "symbolizer/export/perf_script.h"
#include "symbolizer/export/pstats.h"
#include "symbolizer/export/select.h"
#include "symbolizer/export/speedscope.h"
#include "symbolizer/profile/folded_recording.h"

namespace dynprof {

struct ExportRequest {
  const Attribution& attribution;
  std::vector<CompileIndex> compiles;  // empty: everything
  ExportTarget target;
  ExportSettings settings;

  // Opened by each format itself, when it knows that it can be written.
  Result<std::unique_ptr<ByteSink>> open() const {
    const bool to_stdout = target.path == "-";
    if (!to_stdout && target.fd < 0) return create_output(target.path);
    const std::string shown = to_stdout ? "stdout" : target.path;
    UniqueFd out(::fcntl(to_stdout ? STDOUT_FILENO : target.fd, F_DUPFD_CLOEXEC, 0));
    if (!out) return errno_error("cannot write to " + shown);
    std::unique_ptr<ByteSink> file = OutputFile::adopt(std::move(out), shown);
    if (to_stdout || !shown.ends_with(".gz")) return file;
    return make_gzip_sink(std::move(file));
  }
};

namespace {

Result<void> write_text(const ExportRequest& request, std::string_view text) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  sink->write(text);
  return sink->finish();
}

// Of one compile, or of several as one: from the function of torch that compiles.
std::string pstats_of(const ExportRequest& request) {
  FoldedRecording folded(request.attribution, request.settings.cpu_only);
  Profile profile;
  if (request.compiles.empty()) {
    profile = folded.session();
  } else {
    std::vector<StackCount> counts;
    for (CompileIndex compile : request.compiles) {
      auto more = folded.wall_counts(compile);
      counts.insert(counts.end(), more.begin(), more.end());
    }
    profile = folded.inside_compile(counts);
  }
  return pstats_bytes(profile, folded.functions());
}

Result<void> write_pstats(const ExportRequest& request) {
  return write_text(request, pstats_of(request));
}

Result<void> write_chrome(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  const std::uint64_t limit = request.settings.max_trace_bytes;
  ASSIGN_OR_RETURN(
      const TraceMerges merges,
      write_chrome_trace(request.attribution, request.compiles, std::move(sink), limit));
  if (const std::string merged = merges.sentence(limit); !merged.empty() && request.settings.note)
    request.settings.note(merged);
  return {};
}

Result<void> write_folded_stacks(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  StackCounts counts(request.attribution);
  FoldedOptions options;
  options.compiles = request.compiles;
  options.waits = !request.compiles.empty() && !request.settings.cpu_only;
  return write_folded(request.attribution, counts, options, *sink);
}

Result<void> write_speedscope_file(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_speedscope(request.attribution, request.compiles, *sink);
}

Result<void> write_perf_script_text(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_perf_script(request.attribution, request.compiles, *sink);
}

Result<void> write_perf_srcline_text(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_perf_srcline(request.attribution, request.compiles, *sink);
}

Result<void> write_json(const ExportRequest& request) {
  StackCounts counts(request.attribution);
  return write_text(request, compiles_json(request.attribution, counts, request.compiles));
}

// gprof2dot reads a file and dot writes one: both are in memory, so that the output file is made only
// when there is something to write.
Result<void> write_svg(const ExportRequest& request) {
  const char* search = std::getenv("PATH");
  ASSIGN_OR_RETURN(CallgraphTools tools, find_callgraph_tools(search ? search : ""));
  UniqueFd profile(::memfd_create("dynprof-profile", MFD_CLOEXEC));
  UniqueFd svg(::memfd_create("dynprof-svg", MFD_CLOEXEC));
  UniqueFd writing(profile ? ::fcntl(profile.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!writing || !svg) return errno_error("cannot hold the picture in memory");
  auto sink_of_profile = OutputFile::adopt(std::move(writing), "the profile in memory");
  sink_of_profile->write(pstats_of(request));
  TRY(sink_of_profile->finish());
  TRY(write_callgraph(tools, profile.get(), svg.get(), CallgraphOptions()));

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

constexpr ExportFormat kFormats[] = {
    {"pstats", "cProfile's format: pstats, snakeviz, gprof2dot, flameprof, tuna", ".profile",
     write_pstats},
    {"chrome", "chrome trace: ui.perfetto.dev, chrome://tracing (.gz in the name: compressed)",
     ".trace.json", write_chrome},
    {"folded", "folded stacks: flamegraph.pl, inferno, speedscope", ".folded", write_folded_stacks},
    {"speedscope", "speedscope.app, one profile per thread", ".speedscope.json",
     write_speedscope_file},
    {"perf-script", "the text of perf script: stackcollapse-perf.pl, Firefox Profiler, speedscope",
     ".perf.txt", write_perf_script_text},
    {"perf-srcline", "perf-script with source lines of native frames, as perf script -F +srcline",
     ".srcline.txt", write_perf_srcline_text},
    {"callgraph", "call graph as SVG (needs gprof2dot and dot)", ".svg", write_svg},
    {"json", "compiles.json, or only the compiles of --compile", ".json", write_json},
};

}  // namespace

std::span<const ExportFormat> export_formats() { return kFormats; }

Result<void> export_recording(const Attribution& attribution, std::string_view format,
                              const ExportTarget& target, std::string_view compile,
                              const ExportSettings& settings) {
  auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                            [&](const ExportFormat& known) { return format == known.name; });
  if (found == std::end(kFormats)) {
    Error unknown = error("unknown format '" + escape_terminal(format) + "'", "formats:");
    for (const ExportFormat& known : kFormats) unknown.hint += std::string(" ") + known.name;
    unknown.exit_code = 2;
    return unknown;
  }
  ExportRequest request{attribution, {}, target, settings};
  if (!compile.empty()) {
    ASSIGN_OR_RETURN(request.compiles, find_compiles(attribution, compile));
  }
  return found->write(request);
}

}  // namespace dynprof
