#include "symbolizer/profile/folded_recording.h"

namespace dynprof {

FoldedRecording::FoldedRecording(const Attribution& attribution)
    : attribution_(attribution),
      counts_(attribution),
      functions_(attribution.frames()),
      whole_tree_(attribution.recording().tables(), functions_.of_frames()),
      compile_tree_(attribution.recording().tables(), functions_.of_frames(),
                    [&](StackId stack) { return attribution.begins_compile(stack); }),
      whole_(whole_tree_),
      compiles_(compile_tree_) {}

Profile FoldedRecording::session() { return whole_.fold(counts_.all()); }

Profile FoldedRecording::of(CompileIndex compile) { return inside_compile(counts_.of(compile)); }

Profile FoldedRecording::inside_compile(std::span<const StackCount> counts) {
  return compiles_.fold(counts);
}

}  // namespace dynprof
