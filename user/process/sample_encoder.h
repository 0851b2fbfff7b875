// From an event of the kernel side to a sample of the recording: frames become interned frames and
// stacks, marker locals a context, an address outside Python a place in a mapped file.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "symbolizer/recording/writer.h"
#include "user/kernel/event_view.h"
#include "user/process/followed_process.h"
#include "user/stacks/merge_stacks.h"
#include "user/stacks/native_frames.h"

namespace dynprof {

// The stack of an event that is laid out as a sample, and torch's reported state of its thread.
struct SamplePlace {
  StackId stack = 0;  // Python frames; 0: it had none
  ContextId context = 0;
};

// Where a wait began, as a wait of the recording wants it; flags are kWait*.
struct WaitStack {
  StackId stack = 0;
  ContextId context = 0;
  std::uint8_t flags = 0;
};

class SampleEncoder {
 public:
  SampleEncoder(RecordingWriter& writer, NativeFrames& native) : writer_(writer), native_(native) {}

  void encode(const SampleView& view, FollowedProcess& process);
  SamplePlace place(const SampleView& view, FollowedProcess& process);
  // `schedule`: where the kernel's __schedule is. Its frame and those it called are of this profiler, and left
  // out.
  WaitStack wait_stack(const SampleView& view, FollowedProcess& process, std::uint64_t schedule);
  // The stack with a native function, by an address in it, as the innermost frame.
  StackId with_function(StackId stack, std::uint64_t address, std::uint64_t now_ns,
                        FollowedProcess& process);
  std::uint64_t samples() const { return samples_; }
  std::uint64_t in_compile() const { return in_compile_; }
  std::uint64_t unmerged() const { return unmerged_; }

 private:
  void learn(const SampleView& view, FollowedProcess& process);
  FrameId python_frame(const dp_frame& frame, FollowedProcess& process);
  StackId stack_of(const SampleView& view, FollowedProcess& process, std::uint8_t& flags);
  ContextId context(const SampleView& view, FollowedProcess& process);

  RecordingWriter& writer_;
  NativeFrames& native_;
  std::vector<CodeRequest> wanted_;                    // scratch
  std::unordered_map<std::uint64_t, FrameId> frames_;  // by code, instruction and entry mark
  std::uint64_t samples_ = 0;
  std::uint64_t in_compile_ = 0;
  std::uint64_t unmerged_ = 0;
  std::vector<FrameId> native_frames_;  // scratch, of one sample
  std::vector<std::uint8_t> in_eval_loop_;
  std::vector<MergedFrame> merged_;
};

}  // namespace dynprof
