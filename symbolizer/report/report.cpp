#include "symbolizer/report/report.h"

#include <algorithm>
#include <numeric>

#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

Selection select(const Analysis& analysis, const ReportOptions& options) {
  Selection selection{analysis, options, options.compiles, {}};
  const Attribution& attribution = analysis.attribution();
  if (selection.compiles.empty()) {
    selection.compiles.resize(attribution.compiles().size());
    std::iota(selection.compiles.begin(), selection.compiles.end(), CompileIndex{0});
  }
  std::sort(selection.compiles.begin(), selection.compiles.end());
  selection.compiles.erase(std::unique(selection.compiles.begin(), selection.compiles.end()),
                           selection.compiles.end());
  for (const StackCount& count : analysis.counts().all()) {
    if (!options.compiles.empty() &&
        !std::binary_search(selection.compiles.begin(), selection.compiles.end(), count.compile)) {
      continue;
    }
    if (!options.phases.empty() && std::find(options.phases.begin(), options.phases.end(),
                                             count.phase) == options.phases.end()) {
      continue;
    }
    selection.counts.push_back(count);
    selection.samples += count.samples;
    selection.ns += count.ns;
  }
  return selection;
}

// Those of one compile.
Selection part(const Selection& selection, CompileIndex compile) {
  Selection one{selection.folded, selection.options, {compile}, {}};
  for (const StackCount& count : selection.counts) {
    if (count.compile != compile) continue;
    one.counts.push_back(count);
    one.samples += count.samples;
    one.ns += count.ns;
  }
  return one;
}

void append_tables(std::string& out, const Selection& selection) {
  if (selection.samples > 0) {
    append_symbol_table(out, selection);
    append_user_lines(out, selection);
  } else {
    append_comment(out, "No samples.");
  }
  append_waits(out, selection);
}

}  // namespace

std::string render_report(const Analysis& analysis, const ReportOptions& options) {
  Selection selection = select(analysis, options);
  std::string out;
  append_header(out, selection);
  append_compile_table(out, selection);
  if (options.compiles.empty()) {
    append_tables(out, selection);
    append_processes(out, selection);
    append_gpu(out, selection);
    if (options.tables) append_profile_tables(out, selection);
    return out;
  }
  // Asked for compiles: a page of each.
  for (CompileIndex compile : selection.compiles) {
    if (compile != selection.compiles.front()) out += "#\n";
    append_compile_page(out, selection, compile);
    out += "#\n";
    append_tables(out, part(selection, compile));
    if (options.tables) append_profile_tables(out, part(selection, compile));
  }
  return out;
}

}  // namespace dynprof
