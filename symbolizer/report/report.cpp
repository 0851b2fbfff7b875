#include "symbolizer/report/report.h"

#include <algorithm>
#include <numeric>

#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

Selection select(FoldedRecording& folded, const ReportOptions& options) {
  Selection selection{folded, options, options.compiles, {}, 0, 0};
  const Attribution& attribution = folded.attribution();
  selection.period_s = static_cast<double>(attribution.recording().meta().period_ns) * 1e-9;
  if (selection.compiles.empty()) {
    selection.compiles.resize(attribution.compiles().size());
    std::iota(selection.compiles.begin(), selection.compiles.end(), CompileIndex{0});
  }
  std::sort(selection.compiles.begin(), selection.compiles.end());
  selection.compiles.erase(std::unique(selection.compiles.begin(), selection.compiles.end()),
                           selection.compiles.end());
  for (const StackCount& count : folded.counts().all()) {
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
  }
  return selection;
}

}  // namespace

std::string render_report(FoldedRecording& folded, const ReportOptions& options) {
  Selection selection = select(folded, options);
  std::string out;
  append_header(out, selection);
  append_compile_table(out, selection);
  if (selection.samples > 0) {
    append_symbol_table(out, selection);
    append_user_lines(out, selection);
  } else {
    append_comment(out, "No samples.");
  }
  if (options.tables) append_profile_tables(out, selection);
  return out;
}

}  // namespace dynprof
