// The processes a recording saw begin, run and end, and which compile each of them was for. A pure
// function of the recording's ProcessLife rows, its samples and its compiles; docs/concepts/process-tree.md has
// the rules and what they miss.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/generated.h"
#include "symbolizer/base/intervals.h"

namespace dynprof {

using ProcessIndex = std::uint32_t;
inline constexpr ProcessIndex kNoChild = 0xffffffff;

// By what a process was given to a compile, best first.
enum class JoinRule : std::uint8_t {
  kNone,    // it belongs to no compile: not joined
  kWorker,  // torch's compile worker (--parent=PID): by the time of the compile that is open there
  kParent,  // started by a process that is joined
  kSource,  // a file on its command line is one the compile generated
  kForkingThread,  // the thread that forked it had the compile open
  kOnlyCompile,    // another thread forked it while one thread of that process compiled
  kShared,         // ... while several did: counted once, given to none
};
const char* join_rule_text(JoinRule rule);

// One program of a process: from its fork or exec to the next exec or its end.
struct ProcessImage {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t cpu_ns = 0;  // of the process so far, when it began
  StringId comm = 0;
  StringId exe = 0;           // 0: it runs what its parent did
  StringId command_line = 0;  // arguments, a 0 byte between two
  std::uint32_t command_bytes = 0;
};

struct ChildProcess {
  std::int32_t pid = 0;
  std::int32_t parent_pid = 0;
  std::int32_t parent_tid = 0;     // 0: not known
  ProcessIndex parent = kNoChild;  // if it is one of these
  std::uint64_t begin_ns = 0, end_ns = 0;
  bool begin_known = false, ended = false;
  bool cpu_known = false;
  bool cpu_final = false;        // as wait4 tells it
  std::uint64_t cpu_ns = 0;      // while the recording ran
  std::int32_t exit_status = 0;  // if ended: as wait4's
  std::uint64_t peak_bytes = 0;  // most resident memory of its last program; 0: not known
  std::vector<ProcessImage> images;
  JoinRule rule = JoinRule::kNone;
  CompileIndex compile = kNoCompile;
  std::uint64_t samples = 0;
  bool worker = false;  // of torch's pool: its CPU goes to compiles by time, see worker_shares
};

// What compile workers did while a compile waited for them.
struct WorkerShare {
  CompileIndex compile = kNoCompile;
  ProcessIndex process = 0;
  std::uint64_t cpu_ns = 0;
};

// The most resident memory of a process that is no child: a target.
struct ProcessPeak {
  std::int32_t pid = 0;
  std::uint64_t bytes = 0;
};

class ProcessTree {
 public:
  explicit ProcessTree(const Attribution& attribution);

  // Children alone, targets not among them; by their begin. Empty where the recording has no rows.
  const std::vector<ChildProcess>& all() const { return all_; }
  bool known() const { return known_; }  // the recording has rows at all
  const std::vector<ProcessIndex>& of(CompileIndex compile) const { return of_[compile]; }
  const std::vector<WorkerShare>& worker_shares() const { return shares_; }
  const std::vector<ProcessPeak>& target_peaks() const { return target_peaks_; }  // by pid
  // CPU time of its children, workers' shares included.
  std::uint64_t cpu_ns(CompileIndex compile) const { return cpu_[compile]; }
  std::uint64_t joined_cpu_ns() const { return joined_ns_; }
  std::uint64_t shared_cpu_ns() const { return shared_ns_; }
  std::uint64_t other_cpu_ns() const { return other_ns_; }  // joined to no compile

  // How long the compile's thread was off its CPU while this process ran; the moments it was are given.
  static std::uint64_t overlap_ns(const ChildProcess& child, Interval compile,
                                  const std::vector<Interval>& off_cpu);
  // When it was: its recorded waits. In a recording without them, gaps between two samples that are longer
  // than two periods.
  std::vector<Interval> off_cpu(CompileIndex compile) const;
  // The child that a wait of this thread (for a child, or for a pipe) was for: the one it started last, of
  // those that ran for most of the wait. Null: there is none.
  const ChildProcess* waited_for(std::int32_t pid, std::int32_t tid, const Wait& wait) const;
  // "g++ main.cpp": the program's name and the source it was given; raw text from the target.
  std::string title(const ChildProcess& child) const;
  std::string title(const ChildProcess& child, const ProcessImage& image) const;
  // Its arguments, for display: at most `limit` bytes, the middle of long ones left out.
  std::vector<std::string> arguments(const ProcessImage& image, std::size_t limit) const;

 private:
  void count_samples();
  void join();
  void join_one(ChildProcess& child);
  bool join_by_source(ChildProcess& child);
  bool join_by_thread(ChildProcess& child);
  void add_up();
  // Compiles open in a process at a moment: the innermost one of each thread.
  std::vector<CompileIndex> open_at(std::int32_t pid, std::uint64_t time_ns) const;

  const Attribution& attribution_;
  Generated generated_;
  const Tables& tables_;
  bool known_ = false;
  std::vector<ChildProcess> all_;
  std::vector<std::vector<ProcessIndex>> of_;  // by CompileIndex
  std::vector<std::uint64_t> cpu_;
  std::vector<WorkerShare> shares_;
  std::vector<ProcessPeak> target_peaks_;
  std::uint64_t joined_ns_ = 0, shared_ns_ = 0, other_ns_ = 0;
  std::vector<std::pair<std::int32_t, std::vector<CompileIndex>>> compiles_of_;  // by pid, ordered
  std::map<std::int32_t, std::vector<ProcessIndex>> children_of_;  // by the parent's pid
  // By pid and tid: when a thread was on a CPU inside a compile.
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::uint64_t>> busy_;
};

}  // namespace dynprof
