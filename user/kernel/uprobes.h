// Probes in the targets' code: a BPF program at one instruction of a file, in one process. Never return probes: see
// bpf/uprobes.bpf.c.
//
// They are links of the kernel's uprobe_multi where it has these and they can be limited to a process (Linux 6.10, and
// earlier kernels with its fix), else perf events. To remove a probe the kernel waits for a grace period, a tenth of a second. It waits
// for those of many links at once, but for one perf event after the other: 16 probes take 0.07 s and 1.4 s (tests/bench/probe_hits.c).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

struct bpf_link;
struct bpf_object;
struct bpf_program;

namespace dynprof {

class ClosingProcess;

struct UprobePlace {
  pid_t pid = 0;
  const std::string& path;   // names the file for the kernel (user/target/function_offsets.h)
  std::uint64_t offset = 0;  // of the instruction in the file
  std::uint64_t cookie = 0;
  std::uint64_t semaphore = 0;  // offset of a counter that the kernel raises; 0: none
};

struct EventLinkDeleter {
  void operator()(bpf_link* link) const;
};

// A probe that is set; removed soon after it is destroyed.
class Uprobe {
 public:
  Uprobe() = default;
  Uprobe(std::unique_ptr<bpf_link, EventLinkDeleter> event, UniqueFd link, ClosingProcess* closing);
  ~Uprobe() { reset(); }
  Uprobe(Uprobe&&) noexcept = default;
  Uprobe& operator=(Uprobe&& other) noexcept;
  void reset();

 private:
  friend void close_together(std::vector<Uprobe> probes);
  // What removes it when it is closed; a program at a perf event is not run any more.
  UniqueFd release();

  std::unique_ptr<bpf_link, EventLinkDeleter> event_;
  UniqueFd link_;
  ClosingProcess* closing_ = nullptr;  // outlives it
};

// Removed at the same time, after those that were destroyed before.
void close_together(std::vector<Uprobe> probes);

// Whether the kernel has uprobe_multi links, limited to a process. Loads a small program.
bool has_uprobe_links();

class Uprobes {
 public:
  // Early: ClosingProcess::start().
  static Result<std::unique_ptr<Uprobes>> start();
  // Waits until all are removed.
  ~Uprobes();

  // Setting one takes CAP_SYS_ADMIN.
  bool need_admin() const { return !links_; }
  // For programs with SEC("uprobe"), before they are loaded.
  void prepare(bpf_object* object) const;
  // `failure` begins the text of an error: "cannot probe time.time_ns".
  Result<Uprobe> attach(const bpf_program* program, const UprobePlace& place,
                        const std::string& failure) const;

 private:
  Uprobes(std::unique_ptr<ClosingProcess> closing, bool links);

  std::unique_ptr<ClosingProcess> closing_;
  bool links_;
};

}  // namespace dynprof
