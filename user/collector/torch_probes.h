// Probes on torch's native functions in one process (source E): begin and end of whole compiles and
// of runs of compiled regions. Gone with this object, and with our process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <future>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/collector/kernel_side.h"

namespace dynprof {

class TorchProbes {
 public:
  // Once per process, as soon as torch's libraries are mapped; false: they are not yet.
  bool attach(pid_t pid, KernelSide& kernel);
  bool attached() const { return attached_; }
  // Tells of every compile before its first phase begins.
  bool sees_compiles() const { return sees_frames_ && sees_waits_; }
  void detach() {
    links_.clear();
    region_links_.clear();
    if (closing_.valid()) closing_.get();
  }

  // The edge an event is; false: it is none. `node` is what an autograd node that begins runs, "" for
  // nothing compiled.
  bool edge(const dp_probe_event& event, std::string_view node, RecordingWriter& writer,
            SpanEdge& edge);

  // Whether this thread begins a compile now, as opposed to a part of one.
  bool begins_compile(const dp_probe_event& event) const;

  // Which probes could not be set, and why; once, "" otherwise.
  std::string take_problem();

 private:
  void count_region(std::uint64_t now_ns);
  bool run_begins(std::vector<bool>& open, bool recorded) const;
  static bool run_ends(std::vector<bool>& open);

  std::vector<Link> links_;
  std::vector<Link> region_links_;  // runs of regions and of their backwards
  std::future<void> closing_;       // of those that were given up
  std::uint64_t second_ = 0;        // of the last runs of regions, and how many
  std::uint32_t runs_ = 0;
  struct Counter {
    StringId name = 0;
    bool compile = false;  // runs during a whole compile
  };
  std::unordered_map<std::uint64_t, Counter> counters_;  // by address
  // Per thread the nodes that run now, outermost first: whether each is in the recording.
  std::unordered_map<std::uint32_t, std::vector<bool>> nodes_, regions_;
  bool runs_given_up_ = false;
  bool attached_ = false;
  bool sees_frames_ = false;
  bool sees_waits_ = false;
  std::string problem_;
};

}  // namespace dynprof
