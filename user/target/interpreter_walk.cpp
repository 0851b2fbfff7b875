#include "user/target/interpreter_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

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
                                                    std::size_t limit) {
  const PythonLayout& t = objects.layout();
  RemoteMemory& memory = objects.memory();
  auto top = memory.read<std::uint64_t>(tstate + t.bpf.tstate_frame);
  if (top && *top != 0 && t.bpf.cframe_frame != DP_NO_OFFSET) {
    top = memory.read<std::uint64_t>(*top + t.bpf.cframe_frame);
  }
  if (!top) return std::nullopt;
  std::vector<RemoteFrame> frames;
  for (std::uint64_t frame = *top; frame != 0 && frames.size() < limit;) {
    if (!plausible_pointer(frame)) return std::nullopt;
    std::array<std::byte, DP_FRAME_READ_BYTES> bytes;
    if (!memory.read(frame + t.bpf.frame_base, bytes)) return std::nullopt;
    bool shim = t.bpf.shim_owner != 0xff &&
                load<std::uint8_t>(bytes, t.bpf.frame_owner) >= t.bpf.shim_owner;
    if (!shim) {
      std::uint64_t mask = t.bpf.code_tag_mask;
      frames.push_back({frame, load<std::uint64_t>(bytes, t.bpf.frame_code) & ~mask});
    }
    frame = load<std::uint64_t>(bytes, t.bpf.frame_previous);
  }
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
      best = {offset, count, asked};
      best_is_key = is_key;
    }
  }
  if (best.agree == 0 || 2 * best.agree < asked) return std::nullopt;
  return best;
}

}  // namespace dynprof
