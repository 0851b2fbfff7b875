// The stack of a thread that runs on while it is read. Frames are read until three readings in a row
// are equal, so that what comes back is no mixture of two moments: its callers stood still in between,
// and of the leaf one instruction is known that it was at.
//
// A generator that yields loses its caller. A loop that does so all the time would make readings equal
// that all end at the generator. So a stack with a generator at its root, one that was cut off, one with
// what is no code object, or nothing at all is accepted only from a thread that sleeps, or after fifty equal
// readings over some milliseconds.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "user/target/code_reader.h"
#include "user/target/interpreter_walk.h"
#include "user/target/python_runtime.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {

using Deadline = std::chrono::steady_clock::time_point;

struct StackFrame {
  RemoteFrame at;
  std::optional<std::uint32_t> identity;  // of the code object, as it was then; nullopt: unreadable
  bool operator==(const StackFrame&) const = default;
};

struct RemoteStack {
  std::vector<StackFrame> frames;  // leaf first
  bool truncated = false;          // there are more frames below
  bool cut_off = false;            // see walk_frames
};

// Whether the outermost frames of both are the same calls, each at the same place but for a leaf.
bool same_calls(const RemoteStack& a, const RemoteStack& b, std::size_t frames_from_root);

class StackReader {
 public:
  StackReader(RemoteMemory& memory, const PythonRuntime& runtime);

  // False: the readings did not agree until the deadline; `stack` is the last one then.
  bool read(pid_t tid, std::uint64_t tstate, Deadline deadline, RemoteStack& stack);
  // For readings some time apart: see SnapshotMemory::keep_unused.
  void keep_unused(unsigned renewals) { pages_.keep_unused(renewals); }
  // Once more, now; nullopt: torn.
  std::optional<RemoteStack> again(std::uint64_t tstate);
  // The same right after `then` was read, without reading the identity of a code object that it has at the same place: while
  // a frame stands, its code object does.
  std::optional<RemoteStack> again(std::uint64_t tstate, const RemoteStack& then);

  // Memory as it was when the last stack was read, as far as it lies in the same pages.
  RemoteObjects& moment() { return objects_; }

 private:
  std::optional<RemoteStack> walk(std::uint64_t tstate, const RemoteStack& then);
  bool in_doubt(const RemoteStack& stack);

  SnapshotMemory pages_;
  RemoteObjects objects_;
  CodeReader codes_;
};

// Code objects by what they are called, each read once.
class CodeNames {
 public:
  CodeNames(RemoteObjects& objects, const PythonRuntime& runtime)
      : reader_(objects, runtime.code_type) {}

  void read(const RemoteStack& stack);
  const RemoteCode& of(const StackFrame& frame) const;
  CodeReader& reader() { return reader_; }
  // The slot of a local variable, by its name; nullopt: it has none.
  std::optional<std::uint16_t> slot(const StackFrame& frame, std::string_view name);

 private:
  using Key = std::pair<std::uint64_t, std::uint32_t>;
  CodeReader reader_;
  std::map<Key, RemoteCode> codes_;
  std::map<Key, std::optional<std::vector<LocalName>>> locals_;
};

}  // namespace dynprof
