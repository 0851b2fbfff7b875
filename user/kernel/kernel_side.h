// The loaded BPF programs and their maps: what user space can write to the kernel side and read back.
// Everything is detached when this object is destroyed, and by the kernel when the process ends.
//
// More than 15 public members (KernelSide): tests replace it by one class (tests/unit/fake_kernel.h).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/events.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/kernel/direct_map.h"
#include "user/kernel/event_rings.h"
#include "user/kernel/uprobes.h"
#include "user/kernel/watch_armer.h"

struct bpf_link;

namespace dynprof {

struct KernelSideOptions {
  std::uint64_t ring_bytes = 8 << 20;  // a power of two, at least a page
  bool watchpoints = true;
  bool probes = true;
  bool command_lines = true;    // of the programs that followed processes start
  bool direct_map = true;       // read the target's memory there, where that can be done
  bool count_all_runs = false;  // of compiled regions, at any rate
};

// Sums over CPUs, indexed by enum dp_counter.
using Counters = std::array<std::uint64_t, DP_COUNTER_COUNT>;

// A program attached to something; detached when destroyed.
struct LinkDeleter {
  void operator()(bpf_link* link) const;
};
using Link = std::unique_ptr<bpf_link, LinkDeleter>;

// A hardware watchpoint with a program attached to it. Not armed it keeps its slot, and costs its thread
// nothing. One that has a leader (open_instruction_watchpoint) is armed with it.
class Watchpoint {
 public:
  Watchpoint() = default;
  Watchpoint(Link link, UniqueFd event) : event_(std::move(event)), link_(std::move(link)) {}
  explicit operator bool() const { return link_ != nullptr; }
  void arm(bool on) const;
  int fd() const { return event_.get(); }
  void reset() { *this = Watchpoint(); }

 private:
  UniqueFd event_;
  Link link_;
};

// The probes of bpf/uprobes.bpf.c.
enum class Probe : std::uint8_t {
  kClockRead,
  kRegionEntered,
  kRegionLeft,
  kLookupEntered,
  kNodeEntered,
  kNodeLeft,
  kNodeRaised,
  // of bpf/annotations.bpf.h; their cookie is the slot of their rate | dp_annotation_kind << 32
  kRangePushed,
  kRangePopped,
  kAttributesPushed,
  kDomainPushed,
  kDomainPopped,
  kRecordEntered,
  kRecordMade,
  kRecordEnded,
};

class KernelSide {
 public:
  // Loads all objects; nothing is attached yet.
  static Result<std::unique_ptr<KernelSide>> load(const KernelSideOptions& options);
  virtual ~KernelSide() = default;

  virtual Result<void> set_process(std::uint32_t pid, const dp_process& process) = 0;
  // The same, for a process that the kernel side follows; one that has ended is not followed any more.
  virtual Result<void> update_process(std::uint32_t pid, const dp_process& process) = 0;
  virtual void forget_process(std::uint32_t pid) = 0;
  // Tells the kernel side that this code object has been read, and what marker it is, if any.
  virtual void add_code(std::uint32_t pid, std::uint64_t code, const dp_marker_code& marker) = 0;
  // Where torch keeps what it knows about a thread (tid).
  virtual void set_torch_thread(std::uint32_t tid, const dp_torch_thread& thread) = 0;
  // A slot in which the calls of one process are counted, to be the cookie of its Probe::kClockRead.
  virtual std::uint32_t new_clock_slot() = 0;
  // A slot for the rate at which a process runs compiled regions or marks annotations, for the cookie of its probes on
  // these.
  virtual std::uint32_t new_run_slot() = 0;
  // The counts of runs so far, of all processes; they change at any time, and there may be more after each
  // call. One whose pid is 0 is not filled in yet.
  virtual std::span<const dp_region_count> region_counts() const = 0;
  // Where the kernel maps memory, for other programs that read the target's; base 0: not to be used.
  virtual const DirectMap& direct_map() const = 0;

  // Arms hardware watchpoints when compiles begin. Null: they are not wanted.
  virtual WatchArmer* armer() const = 0;
  // False: probes in the targets' code are not wanted.
  virtual bool may_probe() const = 0;
  // For programs loaded beside these; null if probes are not wanted.
  virtual const Uprobes* uprobes() const = 0;
  // Sends an inline event whenever this watchpoint on the first or last instruction is hit.
  virtual Result<Watchpoint> watch_inline(UniqueFd watchpoint, bool begin) = 0;
  // `what` is for error texts.
  virtual Result<Uprobe> attach_probe(Probe probe, const UprobePlace& place,
                                      std::string_view what) = 0;
  // Follows forks, execs and exits from here on.
  virtual Result<void> attach_process_events() = 0;
  // Takes a sample whenever this perf event fires.
  virtual Result<Link> attach_sampler(UniqueFd perf_event) = 0;
  virtual void detach() = 0;

  // Readable when the kernel side asks for attention; poll it and call consume, or call it on a timer.
  virtual int ring_fd() const = 0;
  // Hands out events that wait, oldest first of each ring, and returns when none is left or the budget is
  // used up: under load there is always another one. The bytes are valid during the call only. True: none
  // was left.
  using Visitor = std::function<void(std::span<const std::byte>)>;
  virtual bool consume(const Visitor& visit, const DrainBudget& budget) = 0;
  // Of all rings together: as much as can wait in them at one time.
  virtual std::uint64_t ring_capacity() const = 0;
  virtual Counters counters() const = 0;

  // For programs loaded beside these, and for NativeUnwind: one of our maps by its name, -1: there is none; and a
  // ring buffer whose events consume() is to hand out too.
  virtual int map_fd(const char* name) const = 0;
  virtual Result<void> add_ring(int map_fd) = 0;
};

}  // namespace dynprof
