// Finds torch in one process: its version, its layouts and the functions that mark compiles. Torch may be
// imported, and its classes first used, at any time, so it is looked for until all of it is known.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "symbolizer/recording/writer.h"
#include "user/process/look_schedule.h"
#include "user/process/process_identity.h"
#include "user/process/process_python.h"
#include "user/target/torch_layout.h"
#include "user/torch/torch_probes.h"

namespace dynprof {

class TorchFinder {
 public:
  // `probes`: functions of torch will be probed, which waits until its libraries are mapped.
  TorchFinder(ProcessIdentity& identity, ProcessPython& python, LookSchedule& schedule, bool probes)
      : identity_(identity), python_(python), schedule_(schedule), probes_wanted_(probes) {}

  // Python must be found.
  void look(std::uint64_t now_ns);
  // While a compile goes on, at growing intervals: torch makes what is looked for by compiling. True: it looked.
  bool look_while_compiling(std::uint64_t now_ns);
  void inherit(const TorchFinder& parent) { torch_ = parent.torch_; }
  void forget();

  bool imported() const { return !torch_.version.empty(); }
  const TorchTarget& torch() const { return torch_; }
  // All probes are set, on these functions.
  void set_probed(const RunFunctions& functions);
  // See dp_torch_layout::node_object.
  void set_node_object(std::uint16_t place) { torch_.layout.node_object = place; }
  // The words of a PyNode in which its instance is looked for; 0: it is known where it lies.
  std::uint16_t searched_node_words() const {
    const std::uint16_t place = torch_.layout.node_object;
    return place & DP_NODE_SEARCHED ? static_cast<std::uint16_t>(place & ~DP_NODE_SEARCHED) : 0;
  }
  // The name of an open phase in a sample; 0: the str is gone.
  StringId phase_name(const dp_phase_name& name, RecordingWriter& writer);

 private:
  void look_for_tracing();
  void use_functions();

  ProcessIdentity& identity_;
  ProcessPython& python_;
  LookSchedule& schedule_;
  TorchTarget torch_;
  bool probes_wanted_;
  bool probed_ = false;
  RunFunctions functions_;
  std::uint64_t next_tracing_look_ns_ = 0, tracing_backoff_ns_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, StringId> phase_names_;  // by object and hash
};

}  // namespace dynprof
