// The loaded BPF programs and their maps: what user space can say to the kernel side and read back.
// Everything is detached when this object goes, and by the kernel when the process dies.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bpf/events.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/collector/direct_map.h"

struct bpf_link;

namespace dynprof {

struct KernelSideOptions {
  std::uint64_t ring_bytes = 8 << 20;  // a power of two, at least a page
  bool watchpoints = true;
  bool command_lines = true;  // of the programs that followed processes start
  bool direct_map = true;     // read the target's memory there, where that can be done
};

// Sums over CPUs, indexed by enum dp_counter.
using Counters = std::array<std::uint64_t, DP_COUNTER_COUNT>;

// A program attached to something; detached when it goes.
struct LinkDeleter {
  void operator()(bpf_link* link) const;
};
using Link = std::unique_ptr<bpf_link, LinkDeleter>;

// A hardware watchpoint with a program attached to it, armed at first. Not armed it keeps its slot, and
// costs its thread nothing.
class Watchpoint {
 public:
  Watchpoint() = default;
  Watchpoint(Link link, UniqueFd event) : event_(std::move(event)), link_(std::move(link)) {}
  explicit operator bool() const { return link_ != nullptr; }
  void arm(bool on) const;
  void reset() { *this = Watchpoint(); }

 private:
  UniqueFd event_;
  Link link_;
};

// The probes of bpf/uprobes.bpf.c.
enum class Probe : std::uint8_t {
  kCounterMade,
  kCounterNamed,
  kWaitStarted,
  kWaitStopped,
  kRegionEntered,
  kRegionLeft,
  kNodeEntered,
  kNodeLeft,
  kFrameSeen,
};

class KernelSide {
 public:
  // Loads both objects; nothing fires yet.
  static Result<std::unique_ptr<KernelSide>> load(const KernelSideOptions& options);
  virtual ~KernelSide() = default;

  virtual Result<void> set_process(std::uint32_t pid, const dp_process& process) = 0;
  // The same, of a process that the kernel side follows: one that has ended is none any more.
  virtual Result<void> update_process(std::uint32_t pid, const dp_process& process) = 0;
  virtual void forget_process(std::uint32_t pid) = 0;
  // Tells the kernel side that this code object has been read, and what marker it is, if any.
  virtual void add_code(std::uint32_t pid, std::uint64_t code, const dp_marker_code& marker) = 0;
  virtual void forget_code(std::uint32_t pid, std::uint64_t code) = 0;
  // Where torch keeps what it knows about a thread (tid).
  virtual void set_torch_thread(std::uint32_t tid, const dp_torch_thread& thread) = 0;
  virtual void forget_torch_thread(std::uint32_t tid) = 0;
  // A place for the length of one thread's list of phases, and that length: only while no hit can change
  // it, or before looking at the list once more.
  virtual std::uint32_t new_phase_slot() = 0;
  virtual void set_phase_depth(std::uint32_t slot, std::uint32_t depth) = 0;
  // When it last was hit, as the event of that hit tells it; 0: not since its depth was set.
  virtual std::uint64_t last_phase_hit(std::uint32_t slot) const = 0;
  // Where the kernel maps memory, for other programs that read the target's; base 0: not to be used.
  virtual const DirectMap& direct_map() const = 0;

  // False: nobody wants hardware watchpoints.
  virtual bool may_watch() const = 0;
  // Sends a phase event whenever this watchpoint on a list of phases is hit.
  virtual Result<Watchpoint> watch_phases(UniqueFd watchpoint) = 0;
  // ... an inline event, when this watchpoint on the first or last instruction is.
  virtual Result<Watchpoint> watch_inline(UniqueFd watchpoint, bool begin) = 0;
  // ... a break event, when this one on the length of the list of graph breaks is.
  virtual Result<Watchpoint> watch_breaks(UniqueFd watchpoint) = 0;
  // Probes a function of a file that the process maps, in that process alone.
  virtual Result<Link> attach_probe(Probe probe, pid_t pid, const std::string& path,
                                    const std::string& symbol) = 0;
  // Follows forks, execs and exits from here on.
  virtual Result<void> attach_process_events() = 0;
  // Takes a sample whenever one of these perf events fires.
  virtual Result<void> attach_sampling(std::vector<UniqueFd> perf_events) = 0;
  virtual void detach() = 0;

  // For NativeUnwind.
  virtual int unwind_tables_fd() const = 0;
  virtual int native_spaces_fd() const = 0;
  // Readable when the kernel side asks for attention; poll it and call consume, or call it on a timer.
  virtual int ring_fd() const = 0;
  // Hands out every event that waits, oldest first; the bytes are valid during the call only.
  using Visitor = std::function<void(std::span<const std::byte>)>;
  virtual int consume(const Visitor& visit) = 0;
  virtual Counters counters() const = 0;

  // For programs loaded beside these: one of our maps by its name, -1: there is none; and a ring buffer
  // whose events consume() is to hand out too.
  virtual int map_fd(const char* name) const = 0;
  virtual Result<void> add_ring(int map_fd) = 0;
};

}  // namespace dynprof
