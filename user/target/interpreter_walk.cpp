#include "user/target/interpreter_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "bpf/events.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxInterpreters = 4096;
constexpr std::size_t kMaxThreads = 65'536;
constexpr std::int32_t kSearchBytes = 4096;  // below and above the fs base

// Threads of one interpreter. False when the list makes no sense from its head on.
bool walk_threads(RemoteObjects& objects, std::uint64_t interpreter, InterpreterWalk& walk,
                  std::size_t& count) {
  const PythonLayout& t = objects.layout();
  RemoteMemory& memory = objects.memory();
  auto head = memory.read<std::uint64_t>(interpreter + t.interpreter_threads_head);
  if (!head) return false;
  std::uint64_t tstate = *head;
  for (bool first = true; tstate != 0 && walk.threads.size() < kMaxThreads; first = false) {
    if (!plausible_pointer(tstate)) return !first;
    auto owner = memory.read<std::uint64_t>(tstate + t.bpf.tstate_interp);
    if (!owner || *owner != interpreter) return !first;  // later ones: unlinked while we walk
    RemoteThread thread;
    thread.tstate = tstate;
    thread.interpreter = interpreter;
    thread.pthread = memory.read<std::uint64_t>(tstate + t.bpf.tstate_thread_id).value_or(0);
    if (t.tstate_native_thread_id != 0) {
      thread.native_id = memory.read<std::uint64_t>(tstate + t.tstate_native_thread_id).value_or(0);
    }
    walk.threads.push_back(thread);
    ++count;
    tstate = memory.read<std::uint64_t>(tstate + t.tstate_next).value_or(0);
  }
  return true;
}

// One walk from the top frame to the root; bpf/python.bpf.h says why each step is as it is.
class FrameWalk {
 public:
  explicit FrameWalk(RemoteObjects& objects)
      : memory_(objects.memory()), layout_(objects.layout().bpf) {}

  std::optional<std::vector<RemoteFrame>> run(std::uint64_t tstate, std::size_t limit) {
    if (!find_top(tstate)) return std::nullopt;
    while (frame_ != 0) {
      if (frames_.size() == limit) return std::move(frames_);
      bool endless = steps_ > 2 * limit;  // as many shims as frames
      if (endless || walks_in_a_circle() || !step()) return std::nullopt;
    }
    cut_off_ = cut_off_ || check_caller_;
    return std::move(frames_);
  }
  bool cut_off() const { return cut_off_; }

 private:
  bool find_top(std::uint64_t tstate) {
    auto top = memory_.read<std::uint64_t>(tstate + layout_.tstate_frame);
    if (!top) return false;
    frame_ = *top;
    if (*top == 0 || layout_.cframe_frame == DP_NO_OFFSET) return true;
    auto frame = memory_.read<std::uint64_t>(*top + layout_.cframe_frame);
    if (!frame) return false;
    frame_ = *frame;
    auto below = memory_.read<std::uint64_t>(*top + layout_.cframe_previous);
    auto caller = below && *below != 0 ? memory_.read<std::uint64_t>(*below + layout_.cframe_frame)
                                       : std::nullopt;
    if (!caller) return true;
    caller_ = *caller;
    check_caller_ = frame_ != 0;
    if (frame_ == 0) frame_ = caller_;
    return true;
  }

  // Compares with the frame met at the last power of two of steps: any circle is noticed within three
  // times its length (Brent).
  bool walks_in_a_circle() {
    if (frame_ == earlier_frame_) return true;
    ++steps_;
    if ((steps_ & (steps_ - 1)) == 0) earlier_frame_ = frame_;
    return false;
  }

  std::int32_t unit_of(std::span<const std::byte> bytes, std::uint64_t code) const {
    std::int64_t unit = load<std::int32_t>(bytes, layout_.frame_instr);
    if (!layout_.instr_is_index) {
      std::uint64_t start = code + layout_.code_instructions;
      // Before the first instruction the pointer is one unit below the start.
      unit =
          static_cast<std::int64_t>(load<std::uint64_t>(bytes, layout_.frame_instr) - start) >> 1;
    }
    bool inside = unit >= RemoteFrame::kNotBegun && unit < std::int64_t{DP_FRAME_UNIT_MASK};
    return inside ? static_cast<std::int32_t>(unit) : RemoteFrame::kNowhere;
  }

  bool step() {
    if (!plausible_pointer(frame_)) return false;
    std::array<std::byte, DP_FRAME_READ_BYTES> bytes;
    if (!memory_.read(frame_ + layout_.frame_base, bytes)) return false;
    auto previous = load<std::uint64_t>(bytes, layout_.frame_previous);
    bool shim = layout_.shim_owner != 0xff &&
                load<std::uint8_t>(bytes, layout_.frame_owner) >= layout_.shim_owner;
    bool entry = shim;
    if (!shim) {
      std::uint64_t mask = layout_.code_tag_mask;
      std::uint64_t code = load<std::uint64_t>(bytes, layout_.frame_code) & ~mask;
      frames_.push_back({frame_, code, unit_of(bytes, code)});
      entry = layout_.frame_is_entry != DP_NO_OFFSET &&
              load<std::uint8_t>(bytes, layout_.frame_is_entry) != 0;
    }
    // `previous` is what lies below the last frame of the topmost eval-loop call.
    if (entry && check_caller_) {
      cut_off_ = previous != caller_;
      check_caller_ = false;
    }
    frame_ = previous;
    return true;
  }

  RemoteMemory& memory_;
  const dp_python_layout& layout_;
  std::uint64_t frame_ = 0;
  std::uint64_t caller_ = 0;  // where the topmost eval-loop call must lead to
  std::uint64_t earlier_frame_ = 0;
  std::size_t steps_ = 0;
  bool check_caller_ = false;
  bool cut_off_ = false;
  std::vector<RemoteFrame> frames_;
};

}  // namespace

const RemoteInterpreter* InterpreterWalk::main() const {
  for (const RemoteInterpreter& interpreter : interpreters) {
    if (interpreter.id == 0) return &interpreter;
  }
  return nullptr;
}

InterpreterWalk walk_interpreters(RemoteObjects& objects, std::uint64_t runtime) {
  const PythonLayout& t = objects.layout();
  RemoteMemory& memory = objects.memory();
  InterpreterWalk walk;
  auto head = memory.read<std::uint64_t>(runtime + t.runtime_interpreters_head);
  if (!head) {
    walk.problem = "_PyRuntime is not readable";
    return walk;
  }
  std::uint64_t interpreter = *head;  // newest first
  while (interpreter != 0 && walk.interpreters.size() < kMaxInterpreters) {
    if (!plausible_pointer(interpreter)) {
      walk.problem = fmt::format("interpreters.head is {:#x}", interpreter);
      return walk;
    }
    RemoteInterpreter found;
    found.address = interpreter;
    found.id = memory.read<std::int64_t>(interpreter + t.interpreter_id).value_or(-1);
    if (found.id < 0 || found.id > 1'000'000'000) {
      walk.problem = fmt::format("an interpreter's id is {}", found.id);
      return walk;
    }
    if (!walk_threads(objects, interpreter, walk, found.threads)) {
      walk.problem = "an interpreter's thread list does not belong to it";
      return walk;
    }
    walk.interpreters.push_back(found);
    interpreter = memory.read<std::uint64_t>(interpreter + t.interpreter_next).value_or(0);
  }
  return walk;
}

std::optional<std::vector<RemoteFrame>> walk_frames(RemoteObjects& objects, std::uint64_t tstate,
                                                    std::size_t limit, bool* cut_off) {
  FrameWalk walk(objects);
  auto frames = walk.run(tstate, limit);
  if (cut_off) *cut_off = walk.cut_off();
  return frames;
}

bool is_thread_pointer(RemoteMemory& memory, std::uint64_t address) {
  // tcbhead_t (glibc sysdeps/x86_64/nptl/tls.h): tcb at 0 and self at 16; musl has self at 0 only.
  if (!plausible_pointer(address)) return false;
  auto self = memory.read<std::uint64_t>(address);
  return self && *self == address;
}

std::optional<ThreadStateOffset> find_tstate_offset(RemoteMemory& memory,
                                                    std::span<const RemoteThread> threads,
                                                    std::uint64_t main_interpreter) {
  std::map<std::int32_t, std::size_t> votes;
  std::size_t asked = 0;
  std::vector<std::byte> bytes(2 * kSearchBytes);
  for (const RemoteThread& thread : threads) {
    // The key of a thread holds its main-interpreter state; those of others share the thread.
    if (thread.interpreter != main_interpreter || asked == 64) continue;
    if (!is_thread_pointer(memory, thread.pthread)) continue;
    ++asked;
    // By 512-byte pieces: the block may end, or begin, anywhere.
    std::vector<RemoteRange> pieces;
    constexpr std::size_t kPiece = 512;
    std::uint64_t begin = thread.pthread - kSearchBytes;
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
      pieces.push_back({begin + at, std::span(bytes).subspan(at, kPiece)});
    }
    memory.read_many(pieces);
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      if (load<std::uint64_t>(bytes, at) == thread.tstate) {
        ++votes[static_cast<std::int32_t>(at) - kSearchBytes];
      }
    }
  }
  // A thread that begins or ends just now has no state set: most must agree, not all.
  ThreadStateOffset best;
  bool best_is_key = false;
  for (auto [offset, count] : votes) {
    std::int32_t in_keys = offset - (kPthreadKeys + 8);
    bool is_key = in_keys >= 0 && in_keys % kPthreadKeyBytes == 0 &&
                  in_keys < kPthreadKeyBytes * kPthreadKeysInline;
    bool better = is_key != best_is_key ? is_key && 2 * count >= best.agree : count > best.agree;
    if (best.agree == 0 || better) {
      best = {offset, 0, count, asked};
      best_is_key = is_key;
    } else if (!best_is_key && count == best.agree) {
      // The last two are next to the fs base, where the program's own thread-locals are.
      if (best.other != 0) best.offset = best.other;
      best.other = offset;
    }
  }
  if (best.agree == 0 || 2 * best.agree < asked) return std::nullopt;
  return best;
}

}  // namespace dynprof
