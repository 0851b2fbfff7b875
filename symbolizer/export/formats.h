// The formats of `export`: X(name, function, extension, description). The rows declare the functions, so a new
// format is a row here and a file that defines its function. The description is one line of --help.
#pragma once

#include "symbolizer/export/request.h"

// clang-format off
#define DYNPROF_EXPORT_FORMATS(X)                                                                 \
  X("html", export_html, ".html",                                                                 \
    "one page for a browser: tables, timeline, flame graph; needs no network")                    \
  X("pstats", export_pstats, ".profile",                                                          \
    "cProfile's format: pstats, snakeviz, gprof2dot, flameprof, tuna")                            \
  X("chrome", export_chrome, ".trace.json",                                                       \
    "chrome trace: ui.perfetto.dev, chrome://tracing (.gz in the name: compressed)")              \
  X("folded", export_folded, ".folded",                                                           \
    "folded stacks: flamegraph.pl, inferno, speedscope")                                          \
  X("speedscope", export_speedscope, ".speedscope.json",                                          \
    "speedscope.app, one profile per thread")                                                     \
  X("perf-script", export_perf_script, ".perf.txt",                                               \
    "the text of perf script: stackcollapse-perf.pl, Firefox Profiler, speedscope")               \
  X("perf-srcline", export_perf_srcline, ".srcline.txt",                                          \
    "perf-script with source lines of native frames, as perf script -F +srcline")                 \
  X("svg", export_callgraph, ".svg",                                                              \
    "call graph of Python functions as SVG (needs Graphviz' dot)")                                \
  X("dot", export_dot, ".dot",                                                                    \
    "the same in Graphviz' DOT language")                                                         \
  X("json", export_json, ".json",                                                                 \
    "compiles.json, or only the compiles of --compile")                                           \
  X("operators", export_operators, ".operators.json",                                             \
    "operators.json: torch's operators on sampled stacks, by region and user line")
// clang-format on

namespace dynprof {

#define DYNPROF_EXPORT_FUNCTION(name, function, extension, description) \
  Result<void> function(const ExportRequest& request);
DYNPROF_EXPORT_FORMATS(DYNPROF_EXPORT_FUNCTION)
#undef DYNPROF_EXPORT_FUNCTION

}  // namespace dynprof
