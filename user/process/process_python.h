// CPython in one process: readers of its memory, and its code objects, which are announced to the kernel side
// once they are read. Empty until Python is found.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/process/code_table.h"
#include "user/process/look_schedule.h"
#include "user/target/marker_rules.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_values.h"

namespace dynprof {

class ProcessPython {
 public:
  // All of these outlive it.
  ProcessPython(pid_t pid, KernelSide& kernel, LookSchedule& schedule, KnownImages& images);
  ~ProcessPython();

  explicit operator bool() const { return readers_ != nullptr; }
  // Not for one that is found already.
  Result<void> find(PythonDiscovery& details);
  // What the parent had at the moment of fork.
  void inherit(const ProcessPython& parent);
  void forget();

  // These four only once it is found.
  const PythonRuntime& runtime() const { return *runtime_; }
  RemoteObjects& objects() const;
  CodeReader& code_reader() const;
  // Kept, because to learn a class's attributes anew takes a hundred reads.
  RemoteValues& values();

  // Reads those code objects that are new, while they still exist; then code() knows them.
  void learn(std::span<const CodeRequest> codes, RecordingWriter& writer);
  CodeId code(std::uint64_t address, std::uint32_t identity) const {
    return codes_.find(address, identity);
  }
  // Whether one of these frames compiles or tunes a kernel with Triton. Code objects must have been learned.
  bool runs_triton(std::span<const dp_frame> frames) const;
  void add_marker(const ResolvedMarker& marker);
  // Whether a thread's stack has a frame of a marker.
  bool runs_marker() const;
  // It is no marker.
  void add_plain_code(std::uint64_t address, std::uint32_t identity);
  std::uint64_t unreadable_codes() const { return codes_.unreadable(); }

 private:
  struct Readers;

  pid_t pid_;
  KernelSide& kernel_;
  KnownImages& images_;
  LookSchedule& schedule_;
  std::optional<PythonRuntime> runtime_;
  std::unique_ptr<Readers> readers_;
  CodeTable codes_;
  std::unordered_map<std::uint64_t, dp_marker_code> markers_;  // by code address
  std::unordered_map<std::uint64_t, std::uint32_t> triton_;    // identity by code address
};

}  // namespace dynprof
