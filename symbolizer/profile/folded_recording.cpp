#include "symbolizer/profile/folded_recording.h"

namespace dynprof {

FoldedRecording::FoldedRecording(const Attribution& attribution, bool cpu_only)
    : attribution_(attribution),
      cpu_only_(cpu_only),
      counts_(attribution),
      functions_(attribution.frames()),
      whole_tree_(attribution.recording().tables(), functions_.of_frames()),
      compile_tree_(attribution.recording().tables(), functions_.of_frames(),
                    [&](StackId stack) { return attribution.begins_compile(stack); }),
      whole_(whole_tree_),
      compiles_(compile_tree_) {}

const ProcessTree& FoldedRecording::processes() {
  if (!processes_) processes_.emplace(attribution_);
  return *processes_;
}

Profile FoldedRecording::session() { return whole_.fold(counts_.all()); }

std::vector<StackCount> FoldedRecording::wall_counts(CompileIndex compile) const {
  const auto samples = counts_.of(compile);
  std::vector<StackCount> all(samples.begin(), samples.end());
  if (cpu_only_) return all;
  const auto waits = counts_.waits_of(compile);
  all.insert(all.end(), waits.begin(), waits.end());
  return all;
}

Profile FoldedRecording::of(CompileIndex compile) { return inside_compile(wall_counts(compile)); }

Profile FoldedRecording::inside_compile(std::span<const StackCount> counts) {
  return compiles_.fold(counts);
}

}  // namespace dynprof
