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
#include "symbolizer/export/call_graph.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/compiles_json.h"
#include "symbolizer/export/display.h"
#include "symbolizer/export/folded.h"
#include "symbolizer/export/graphviz.h"
#include "symbolizer/export/html/report_page.h"
#include "symbolizer/export/perf_script.h"
#include "symbolizer/export/pstats.h"
#include "symbolizer/export/select.h"
#include "symbolizer/export/speedscope.h"

namespace dynprof {

struct ExportRequest {
  const Analysis& analysis;
  std::vector<CompileIndex> compiles;  // empty: everything
  ExportTarget target;
  ExportSettings settings;

  Result<std::unique_ptr<ByteSink>> open() const { return open_target(target); }
};

namespace {

Result<void> write_text(const ExportRequest& request, std::string_view text) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  sink->write(text);
  return sink->finish();
}

// Of one compile, or of several as one; without any, of everything.
std::vector<StackCount> counts_of(const ExportRequest& request) {
  std::vector<StackCount> counts;
  if (request.compiles.empty()) {
    const auto all = request.analysis.counts().all();
    return {all.begin(), all.end()};
  }
  for (CompileIndex compile : request.compiles) {
    auto more = request.analysis.wall_counts(compile);
    counts.insert(counts.end(), more.begin(), more.end());
  }
  return counts;
}

Result<void> write_pstats(const ExportRequest& request) {
  const Analysis& analysis = request.analysis;
  const Profile profile =
      request.compiles.empty() ? analysis.session() : analysis.inside_compile(counts_of(request));
  return write_text(request, pstats_bytes(profile, analysis.functions()));
}

Result<void> write_chrome(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  const std::uint64_t limit = request.settings.max_trace_bytes;
  ASSIGN_OR_RETURN(const TraceMerges merges,
                   write_chrome_trace(request.analysis, request.compiles, std::move(sink), limit));
  if (const std::string merged = merges.sentence(limit); !merged.empty() && request.settings.note)
    request.settings.note(merged);
  return {};
}

Result<void> write_folded_stacks(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  FoldedOptions options;
  options.compiles = request.compiles;
  options.waits = !request.compiles.empty() && !request.analysis.cpu_only();
  return write_folded(request.analysis, options, *sink);
}

Result<void> write_speedscope_file(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_speedscope(request.analysis, request.compiles, *sink);
}

Result<void> write_perf_script_text(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_perf_script(request.analysis, request.compiles, *sink);
}

Result<void> write_perf_srcline_text(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_perf_srcline(request.analysis, request.compiles, *sink);
}

Result<void> write_json(const ExportRequest& request) {
  return write_text(request, compiles_json(request.analysis, request.compiles));
}

Result<void> write_html_page(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  ReportOptions options;
  options.compiles = request.compiles;
  options.user_packages = request.settings.user_packages;
  return write_html(request.analysis, options, *sink);
}

std::string dot_of(const ExportRequest& request) {
  const Analysis& analysis = request.analysis;
  const Attribution& attribution = analysis.attribution();
  const bool whole = request.compiles.empty();
  std::string title = cap_text(attribution.recording().meta().command);
  if (!whole) title = "compile " + attribution.label(request.compiles.front());
  if (request.compiles.size() > 1)
    title += " and " + std::to_string(request.compiles.size() - 1) + " more";
  const Profile profile = analysis.python_only(counts_of(request), whole);
  return dot_text(prune(call_graph_of(profile, analysis.functions())), title);
}

Result<void> write_dot(const ExportRequest& request) {
  return write_text(request, dot_of(request));
}

// dot writes a file in memory, so that the output file is made only when there is something to write.
Result<void> write_svg(const ExportRequest& request) {
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

constexpr ExportFormat kFormats[] = {
    {"html", "one page for a browser: tables, timeline, flame graph; needs no network", ".html",
     write_html_page},
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
    {"callgraph", "call graph of Python functions as SVG (needs Graphviz' dot)", ".svg", write_svg},
    {"dot", "the same in Graphviz' DOT language", ".dot", write_dot},
    {"json", "compiles.json, or only the compiles of --compile", ".json", write_json},
};

}  // namespace

Result<std::unique_ptr<ByteSink>> open_target(const ExportTarget& target) {
  const bool to_stdout = target.path == "-";
  if (!to_stdout && target.fd < 0) return create_output(target.path);
  const std::string shown = to_stdout ? "stdout" : target.path;
  UniqueFd out(::fcntl(to_stdout ? STDOUT_FILENO : target.fd, F_DUPFD_CLOEXEC, 0));
  if (!out) return errno_error("cannot write to " + shown);
  std::unique_ptr<ByteSink> file = OutputFile::adopt(std::move(out), shown);
  if (to_stdout || !shown.ends_with(".gz")) return file;
  return make_gzip_sink(std::move(file));
}

std::span<const ExportFormat> export_formats() { return kFormats; }

Result<void> export_recording(const Analysis& analysis, std::string_view format,
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
  ExportRequest request{analysis, {}, target, settings};
  if (!compile.empty()) {
    ASSIGN_OR_RETURN(request.compiles, find_compiles(analysis.attribution(), compile));
  }
  return found->write(request);
}

}  // namespace dynprof
