// Probes on the entries of functions in one process (source E): where torch reads the clock, since
// phases begin and end there, and where compiled code begins and ends to run. Gone with this object,
// and with our process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/target/process.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"
#include "user/torch/open_runs.h"

namespace dynprof {

// Where the functions lie that search for compiled code and that run it; begin 0: not probed.
struct RunFunctions {
  dp_code_range lookup = {}, region = {}, node = {};
};

class TorchProbes {
 public:
  // Once per process; false: torch is there, but its libraries are not mapped yet.
  bool attach(KernelSide& kernel, RemoteObjects& objects, const PythonRuntime& runtime);
  bool attached() const { return attached_; }
  // Begin and end of every phase are reported.
  bool sees_phases() const { return !clock_.empty(); }
  const RunFunctions& functions() const { return functions_; }
  void detach();

  // Writes the edges of a run. `node_name` is what an autograd node that begins runs, "" for nothing
  // compiled.
  void on_run(const dp_probe_event& event, std::string_view node_name, ThreadId thread,
              RecordingWriter& writer);
  // The process runs compiled code too often: on_run() is called no more.
  void give_up_events(pid_t pid, std::uint64_t per_second);
  // The same, and their ends are not seen any more.
  void give_up_lengths(pid_t pid, std::uint64_t per_second);
  // The same, and they are not even counted.
  void give_up_runs();
  // The process reads the clock too often for reasons of its own.
  void give_up_clock(pid_t pid);

  // What could not be probed, or is not any more, and why; once, "" otherwise.
  std::string take_problem();

 private:
  void attach_clock(KernelSide& kernel, RemoteObjects& objects, const PythonRuntime& runtime);
  void attach_runs(KernelSide& kernel, pid_t pid, const std::vector<Mapping>& mappings);
  void write_ends(const std::vector<OpenRuns::Run>& runs, bool last_is_known, SpanEdge edge,
                  RecordingWriter& writer);
  void add_problem(const std::string& problem);

  std::vector<Uprobe> clock_;
  std::vector<Uprobe> run_begins_;
  std::vector<Uprobe> run_lengths_;  // ends of runs, and begins of searches
  RunFunctions functions_;
  std::unordered_map<std::uint32_t, OpenRuns> open_;  // by thread
  bool events_given_up_ = false;
  bool clock_tried_ = false;
  bool attached_ = false;
  std::string problem_;
};

}  // namespace dynprof
