// Ranges that a process marks in itself (torch.profiler.record_function, ITT, NVTX), by probes on the entries of the
// functions that begin and end them. A process that calls none of these pays nothing for the probes: torch itself calls
// those on the objects of record_function, which are therefore set at the first call of record_function.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/target/process.h"

namespace dynprof {

class AnnotationProbes {
 public:
  // Once, when torch's libraries are mapped. What a library lacks is not probed.
  void attach(KernelSide& kernel, pid_t pid);
  void detach();

  void on(const dp_annotation_event& event, ThreadId thread, KernelSide& kernel,
          RecordingWriter& writer);
  // The process, or the recording, ends: writes what is open.
  void finish(std::uint64_t time_ns, RecordingWriter& writer);

  // Once, "" otherwise.
  std::string take_problem();

 private:
  struct Open {
    std::uint64_t id = 0;
    std::uint64_t begin_ns = 0;
    StringId name = 0;
    std::uint16_t kind = 0;
  };
  struct OpenOnThread {
    ThreadId thread = 0;
    std::vector<Open> ranges;  // outermost first
  };
  struct Place {
    Probe probe{};
    std::uint16_t kind = 0;
    std::string_view function;
    std::uint64_t offset = 0;
  };
  void attach_library(KernelSide& kernel, pid_t pid, const Mapping& library, bool torch);
  void attach_objects(KernelSide& kernel, pid_t pid);
  void attach_one(KernelSide& kernel, pid_t pid, int file, const Place& place);
  static void write(const Open& range, std::uint64_t end_ns, bool end_seen, ThreadId thread,
                    RecordingWriter& writer);

  std::vector<Link> links_;
  std::uint32_t slot_ = 0;
  UniqueFd torch_file_;         // that `objects_` are in
  std::vector<Place> objects_;  // to be probed once record_function is used
  std::unordered_map<std::uint32_t, OpenOnThread> open_;  // by thread
  std::string problem_;
};

}  // namespace dynprof
