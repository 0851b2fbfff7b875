// Ranges that a process marks in itself (torch.profiler.record_function, ITT, NVTX), by probes on the entries of the
// functions that begin and end them. A process that calls none of these pays nothing for them. record_function is probed
// only on request: its end is that of an object that torch makes for other purposes as well, hundreds of times in a
// compile and at each run of a compiled region.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/target/process.h"
#include "user/torch/started_ranges.h"

namespace dynprof {

class AnnotationProbes {
 public:
  // Once, when torch's libraries are mapped. What a library lacks is not probed.
  void attach(KernelSide& kernel, pid_t pid, bool record_functions);
  void detach();

  void on(const dp_annotation_event& event, ThreadId thread, RecordingWriter& writer);
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
  void attach_library(KernelSide& kernel, pid_t pid, const Mapping& library, bool torch,
                      bool record_functions);
  static void write(const Open& range, std::uint64_t end_ns, bool end_seen, ThreadId thread,
                    RecordingWriter& writer);
  static void write(const StartedRanges::Ended& ended, std::uint16_t kind, std::uint64_t end_ns,
                    RecordingWriter& writer);
  void on_started(const dp_annotation_event& event, ThreadId thread, RecordingWriter& writer);

  std::vector<Uprobe> probes_;
  std::uint32_t slot_ = 0;
  bool any_ = false;                                      // a range was marked
  std::unordered_map<std::uint32_t, OpenOnThread> open_;  // by thread
  std::map<std::pair<std::uint16_t, std::uint64_t>, StartedRanges>
      started_;  // by kind and domain, of the whole process
  std::string problem_;
};

}  // namespace dynprof
