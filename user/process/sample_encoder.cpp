#include "user/process/sample_encoder.h"

#include <algorithm>

namespace dynprof {
namespace {

std::uint8_t recorded_flags(const dp_sample& sample) {
  std::uint8_t flags = 0;
  if (sample.flags & DP_SAMPLE_TRUNCATED) flags |= kSampleTruncated;
  if (sample.flags & DP_SAMPLE_FRAME_FAULT) flags |= kSampleFrameFault;
  if (sample.flags & DP_SAMPLE_MARKERS_CUT) flags |= kSampleMarkersCut;
  return flags;
}

}  // namespace

FrameId SampleEncoder::python_frame(const dp_frame& frame, FollowedProcess& process) {
  const bool entry = frame.unit & DP_FRAME_ENTRY;
  const std::uint32_t unit = frame.unit & DP_FRAME_UNIT_MASK;
  CodeId code = 0;
  if (!(frame.unit & DP_FRAME_CODE_FAULT)) code = process.python().code(frame.code, frame.identity);
  const std::uint64_t key =
      static_cast<std::uint64_t>(code) << 32 | static_cast<std::uint64_t>(entry) << 31 | unit;
  auto [at, added] = frames_.try_emplace(key, 0);
  if (added) {
    Frame recorded;
    recorded.kind = FrameKind::kPython;
    recorded.entry = entry;
    recorded.code = code;
    recorded.unit = unit == DP_FRAME_UNIT_NONE ? -1 : static_cast<std::int32_t>(unit);
    at->second = writer_.frame(recorded);
  }
  return at->second;
}

ContextId SampleEncoder::context(const SampleView& view, FollowedProcess& process) {
  if (view.markers.empty() && !view.torch) return 0;
  Context context;
  for (std::size_t i = view.markers.size(); i-- > 0;) {  // root first
    const dp_marker& marker = view.markers[i];
    if (marker.frame_index >= view.frames.size()) continue;
    // Not assigned yet (an attempt), or None (a backward that only runs): says nothing.
    if (marker.status == DP_MARKER_UNSET && marker.kind != DP_MARKER_COMPILE) continue;
    Marker recorded;
    recorded.kind = marker.kind == DP_MARKER_ATTEMPT    ? MarkerKind::kAttempt
                    : marker.kind == DP_MARKER_BACKWARD ? MarkerKind::kBackward
                                                        : MarkerKind::kCompile;
    recorded.readable = marker.status == DP_MARKER_OK;
    recorded.autograd_id = marker.autograd_id;
    recorded.frame_id = marker.frame_id;
    recorded.compile_id = marker.compile_id;
    recorded.attempt = marker.attempt;
    recorded.depth = static_cast<std::uint32_t>(view.frames.size() - 1 - marker.frame_index);
    recorded.instance = marker.instance;
    if (marker.user_code)
      recorded.user_code = process.python().code(marker.user_code, marker.user_code_identity);
    context.markers.push_back(recorded);
  }
  if (view.torch) {
    context.torch = recorded_state(*view.torch);
    for (const dp_phase_name& phase : view.phases)
      context.torch.phases.push_back(process.torch().phase_name(phase, writer_));
  }
  if (!context.markers.empty() || context.torch.frame_id >= 0 || context.torch.autograd_id >= 0)
    in_compile_++;
  return writer_.context(context);
}

void SampleEncoder::learn(const SampleView& view, FollowedProcess& process) {
  wanted_.clear();
  for (const dp_frame& frame : view.frames)
    if (!(frame.unit & DP_FRAME_CODE_FAULT)) wanted_.push_back({frame.code, frame.identity});
  for (const dp_marker& marker : view.markers)
    if (marker.user_code) wanted_.push_back({marker.user_code, marker.user_code_identity});
  process.python().learn(wanted_, writer_);
}

// Native frames, with the Python frames among them, then the kernel's: from the root on.
StackId SampleEncoder::stack_of(const SampleView& view, FollowedProcess& process,
                                std::uint8_t& flags) {
  const std::uint64_t now = view.sample.header.time_ns;
  native_frames_.clear();
  in_eval_loop_.clear();
  for (std::uint64_t word : view.native) {
    const NativeAddress place = process.native().find(word, native_, now);
    native_frames_.push_back(place.frame);
    in_eval_loop_.push_back(place.in_eval_loop && !view.frames.empty());
  }
  StackHalves halves;
  halves.in_eval_loop = in_eval_loop_;
  // True also where native frames were not asked for.
  halves.native_whole = view.sample.native_end == DP_COUNT_SAMPLES;
  halves.python = view.frames;
  halves.python_whole = !(view.sample.flags & (DP_SAMPLE_TRUNCATED | DP_SAMPLE_FRAME_FAULT));
  // Without the interpreter loop's place (no symbols) there is nothing to join at.
  const bool joins =
      view.native.empty() || view.frames.empty() || process.native().knows_eval_loop();
  if (!halves.native_whole) flags |= kSampleNativeCut;
  StackId stack = 0;
  if (view.native.empty()) {
    for (std::size_t i = view.frames.size(); i-- > 0;)
      stack = writer_.stack({stack, python_frame(view.frames[i], process)});
  } else {
    if (!merge_stacks(halves, merged_) || !joins) {
      flags |= kSampleUnmerged;
      unmerged_++;
    }
    for (std::size_t i = merged_.size(); i-- > 0;) {
      const MergedFrame& at = merged_[i];
      stack = writer_.stack({stack, at.python ? python_frame(view.frames[at.index], process)
                                              : native_frames_[at.index]});
    }
  }
  for (std::size_t i = view.kernel.size(); i-- > 0;)
    stack = writer_.stack({stack, native_.kernel_frame(view.kernel[i])});
  // No native stack was asked for: at least where the thread was.
  if (view.native.empty() && view.frames.empty() && view.kernel.empty()) {
    const FrameId leaf =
        (view.sample.flags & DP_SAMPLE_KERNEL)
            ? native_.kernel_frame(view.sample.ip)
            : native_.user_frame(process.pid(), process.native().mappings(), view.sample.ip, now);
    stack = writer_.stack({stack, leaf});
  }
  return stack;
}

SamplePlace SampleEncoder::place(const SampleView& view, FollowedProcess& process) {
  SamplePlace place;
  learn(view, process);
  for (std::size_t i = view.frames.size(); i-- > 0;)  // root first
    place.stack = writer_.stack({place.stack, python_frame(view.frames[i], process)});
  const std::uint64_t samples_in_compile = in_compile_;
  place.context = context(view, process);
  in_compile_ = samples_in_compile;
  return place;
}

WaitStack SampleEncoder::wait_stack(const SampleView& view, FollowedProcess& process,
                                    std::uint64_t schedule) {
  constexpr std::size_t kOurs = 12;                 // frames of tracepoint and program
  constexpr std::uint64_t kScheduleBytes = 0x2000;  // more than it has
  WaitStack place;
  SampleView seen = view;
  for (std::size_t i = std::min(kOurs, view.kernel.size()); schedule != 0 && i-- > 0;) {
    if (view.kernel[i] < schedule || view.kernel[i] - schedule >= kScheduleBytes) continue;
    seen.kernel = view.kernel.subspan(i + 1);
    break;
  }
  if (!view.frames.empty()) learn(view, process);
  if (view.frames.empty() && view.native.empty() && seen.kernel.empty()) return place;
  std::uint8_t flags = recorded_flags(view.sample);
  place.stack = stack_of(seen, process, flags);
  if (!view.frames.empty()) {
    const std::uint64_t samples_in_compile = in_compile_;
    place.context = context(view, process);
    in_compile_ = samples_in_compile;
  }
  if (flags & (kSampleTruncated | kSampleFrameFault)) place.flags |= kWaitRootMissing;
  if (flags & kSampleUnmerged) place.flags |= kWaitUnmerged;
  return place;
}

StackId SampleEncoder::with_function(StackId stack, std::uint64_t address, std::uint64_t now_ns,
                                     FollowedProcess& process) {
  const NativeAddress place = process.native().find(address | DP_NATIVE_EXACT, native_, now_ns);
  return writer_.stack({stack, place.frame});
}

void SampleEncoder::encode(const SampleView& view, FollowedProcess& process) {
  Sample sample;
  sample.time_ns = view.sample.header.time_ns;
  sample.thread =
      process.identity().threads().of(static_cast<pid_t>(view.sample.header.tid), writer_);
  sample.flags = recorded_flags(view.sample);
  if (!view.frames.empty()) learn(view, process);
  sample.stack = stack_of(view, process, sample.flags);
  if (view.frames.empty()) {
    sample.flags |= kSampleNoPython;
  } else {
    sample.context = context(view, process);
    const auto tid = static_cast<pid_t>(view.sample.header.tid);
    if (!view.markers.empty()) {
      process.tracer().seen(Sighting::kCompile, tid, sample.time_ns);
    } else if (process.python().runs_triton(view.frames)) {
      process.tracer().seen(Sighting::kTriton, tid, sample.time_ns);
    }
    const bool compiles_unseen = !view.markers.empty() && !view.torch;
    if (compiles_unseen || (view.torch && view.torch->status == DP_TORCH_STALE))
      process.tracer().watch_thread(tid, writer_);
  }
  samples_++;
  writer_.sample(sample);
}

}  // namespace dynprof
