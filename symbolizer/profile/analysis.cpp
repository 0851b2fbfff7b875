#include "symbolizer/profile/analysis.h"

#include <functional>

namespace dynprof {
namespace {

std::vector<Label> labels_of(const Analysis& analysis, bool python_only) {
  const std::span<const FunctionId> functions = analysis.functions().of_frames();
  std::vector<Label> labels(functions.begin(), functions.end());
  if (!python_only) return labels;
  for (FrameId frame = 0; frame < labels.size(); ++frame)
    if (analysis.tables().frames[frame].kind != FrameKind::kPython) labels[frame] = kLeftOut;
  return labels;
}

std::function<bool(StackId)> restarts_of(const Analysis& analysis, bool whole) {
  if (whole) return {};
  return [&](StackId stack) { return analysis.attribution().begins_compile(stack); };
}

}  // namespace

Analysis::Folded::Folded(const Analysis& analysis, bool whole, bool python_only)
    : tree(analysis.tables(), labels_of(analysis, python_only), restarts_of(analysis, whole)),
      folder(tree) {}

Profile Analysis::session() const {
  return whole_.get(*this, true, false).folder.fold(counts().all());
}

std::vector<StackCount> Analysis::wall_counts(CompileIndex compile) const {
  const auto samples = counts().of(compile);
  std::vector<StackCount> all(samples.begin(), samples.end());
  if (cpu_only_) return all;
  const auto waits = counts().waits_of(compile);
  all.insert(all.end(), waits.begin(), waits.end());
  return all;
}

Profile Analysis::of(CompileIndex compile) const { return inside_compile(wall_counts(compile)); }

Profile Analysis::inside_compile(std::span<const StackCount> counts) const {
  return compiles_.get(*this, false, false).folder.fold(counts);
}

Profile Analysis::python_only(std::span<const StackCount> counts, bool whole) const {
  const Lazy<Folded>& folded = whole ? whole_python_ : compiles_python_;
  return folded.get(*this, whole, true).folder.fold(counts);
}

}  // namespace dynprof
