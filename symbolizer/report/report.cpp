#include "symbolizer/report/report.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "symbolizer/report/annotation_rows.h"
#include "symbolizer/report/findings.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

// Those of one compile.
Selection part(const Selection& selection, CompileIndex compile) {
  Selection one{selection.analysis, selection.options, {compile}, {}};
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
    append_operators(out, selection);
  } else {
    append_comment(out, "No samples.");
  }
  append_waits(out, selection);
}

}  // namespace

std::vector<bool> helper_threads(const Analysis& analysis) {
  std::set<std::int32_t> pids;
  for (const ChildProcess& child : analysis.processes().all()) {
    if (child.rule != JoinRule::kNone || child.worker) pids.insert(child.pid);
  }
  // A child that compiles itself is no helper.
  for (const Compile& compile : analysis.attribution().compiles()) pids.erase(compile.pid);
  std::vector<bool> helpers;
  for (const Thread& thread : analysis.attribution().recording().tables().threads)
    helpers.push_back(pids.contains(thread.pid));
  return helpers;
}

Selection select_samples(const Analysis& analysis, const ReportOptions& options) {
  Selection selection{analysis, options, options.compiles, {}};
  const Attribution& attribution = analysis.attribution();
  if (selection.compiles.empty()) {
    selection.compiles.resize(attribution.compiles().size());
    std::iota(selection.compiles.begin(), selection.compiles.end(), CompileIndex{0});
  }
  std::sort(selection.compiles.begin(), selection.compiles.end());
  selection.compiles.erase(std::unique(selection.compiles.begin(), selection.compiles.end()),
                           selection.compiles.end());
  const std::vector<bool> helpers = helper_threads(analysis);
  const auto all = analysis.counts().all();
  const std::vector<StackCount> counts = options.annotation.empty()
                                             ? std::vector<StackCount>(all.begin(), all.end())
                                             : counts_inside(analysis, options.annotation);
  for (StackCount count : counts) {
    // Compilers and compile workers have no Python or no torch that says so.
    if (count.compile == kNoCompile && count.phase == Phase::kRuntime && helpers[count.thread])
      count.phase = Phase::kKernelCompile;
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

std::string render_report(const Analysis& analysis, const ReportOptions& options) {
  Selection selection = select_samples(analysis, options);
  std::string out;
  append_title(out, selection);
  if (options.compiles.empty()) {
    // The answers are about everything: not where a part of the phases was asked for.
    const bool whole = options.phases.empty();
    const Findings findings = whole ? find(selection) : Findings{};
    const bool cut_short = whole && append_summary(out, selection, findings);
    out += "#\n";
    append_compile_table(out, selection);
    if (cut_short) append_details(out, selection, findings);
    if (whole) append_start_up(out, selection);
    if (whole) append_regions(out, selection);
    if (whole) append_triton(out, selection);
    if (whole) append_kernels(out, selection);
    if (whole) append_annotations(out, selection);
    append_tables(out, selection);
    append_modules(out, selection);
    append_processes(out, selection);
    append_gpu(out, selection);
  } else {
    out += "#\n";
    append_compile_table(out, selection);
  }
  // Asked for compiles: a page of each.
  for (CompileIndex compile :
       options.compiles.empty() ? std::vector<CompileIndex>{} : selection.compiles) {
    if (compile != selection.compiles.front()) out += "#\n";
    append_compile_page(out, selection, compile);
    out += "#\n";
    append_tables(out, part(selection, compile));
    append_modules(out, part(selection, compile));
    if (options.tables) append_profile_tables(out, part(selection, compile));
  }
  out += "#\n";
  append_about(out, selection);
  append_losses(out, selection);
  // Long, and asked for with one compile or where there are no pictures: an appendix.
  if (options.compiles.empty() && options.tables) append_profile_tables(out, selection);
  return out;
}

}  // namespace dynprof
