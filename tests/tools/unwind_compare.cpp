// unwind_compare PID STOPS SECONDS: stops all threads of a process STOPS times, at moments spread at
// random over SECONDS, and unwinds each thread twice: by libdw and by our tables. Prints each stack that
// differs, and at the end as JSON: {"stops", "stacks", "same", "frames", "whole", "undescribed",
// "libdw_failed", "differ"}.
//
// A stack that libdw leaves early is compared as far as it got, and counted in "libdw_failed"; or in
// "undescribed", where both leave it in code that no unwind table describes, as MKL's AVX-512 kernels
// for sgemm in libtorch_cpu.so of torch 2.13.0.
#include <elfutils/libdwfl.h>
#include <fmt/core.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "symbolizer/base/text.h"
#include "user/target/process.h"
#include "user/target/remote_memory.h"
#include "user/unwind_tables/mappings.h"
#include "user/unwind_tables/table_cache.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxFrames = 512;

struct Stack {
  std::vector<std::uint64_t> ips;  // as they are found: return addresses but for the first
  bool whole = false;              // to the start of the thread
  bool undescribed = false;        // ours only: it ends where no table has a row
};

// What bpf/unwind.bpf.h does.
class OurUnwinder {
 public:
  explicit OurUnwinder(pid_t pid) : pid_(pid), memory_(pid) {}

  void read_mappings() {
    auto read = files_.read(pid_);
    if (read) mappings_ = *std::move(read);
  }

  Stack unwind(const user_regs_struct& registers) {
    Stack stack;
    at_ = registers;
    bp_lost_ = false;
    bool exact = true;
    while (stack.ips.size() < kMaxFrames) {
      stack.ips.push_back(at_.rip);
      const std::uint32_t rule = rule_for(exact ? at_.rip : at_.rip - 1);
      const std::uint32_t kind = dp_unwind_kind(rule);
      stack.whole = kind == DP_CFA_OUTERMOST;
      stack.undescribed = kind == DP_CFA_NONE;
      if (stack.whole || stack.undescribed) break;
      if (kind >= DP_CFA_R10 && kind <= DP_CFA_RBX && stack.ips.size() > 1) break;
      exact = kind == DP_CFA_SIGNAL;
      if (!(exact ? leave_signal(rule) : leave(rule))) break;
    }
    return stack;
  }

 private:
  std::uint32_t rule_for(std::uint64_t ip) {
    for (const CodeMapping& code : mappings_.mappings) {
      if (ip < code.mapping.start || ip >= code.mapping.end || !code.bias) continue;
      return table_of(code).rule_at(ip - *code.bias);
    }
    return DP_CFA_NONE;
  }

  const UnwindTable& table_of(const CodeMapping& code) {
    auto [known, fresh] = tables_.try_emplace(code.file->key);
    if (!fresh) return known->second;
    known->second.rows.push_back({0, DP_CFA_NONE});
    std::vector<std::uint8_t> image;
    Result<ByteSource> source = error("not read");
    if (code.vdso) {
      if (auto bytes = read_vdso(pid_, code.mapping)) image = *std::move(bytes);
      source = ByteSource::of_bytes(image);
    } else if (auto file = open_mapped_file(pid_, code.mapping)) {
      source = ByteSource::of_file(*std::move(file));
    }
    if (!source) return known->second;
    if (auto table = build_unwind_table(*source)) known->second = *std::move(table);
    return known->second;
  }

  bool word(std::uint64_t address, std::uint64_t& value) const {
    const auto read = memory_.read<std::uint64_t>(address);
    if (read) value = *read;
    return read.has_value();
  }

  bool leave_signal(std::uint32_t rule) {
    const std::uint64_t saved =
        at_.rsp + static_cast<std::uint64_t>(std::int64_t{dp_unwind_offset(rule)});
    std::uint64_t ip = 0, sp = 0, bp = 0;
    if (!word(saved + 8, ip) || !word(saved, sp) || !word(saved - 40, bp)) return false;
    at_.rip = ip;
    at_.rsp = sp;
    at_.rbp = bp;
    bp_lost_ = false;
    return true;
  }

  bool find_cfa(std::uint32_t rule, std::uint64_t& cfa) const {
    const auto offset = static_cast<std::uint64_t>(std::int64_t{dp_unwind_offset(rule)});
    const std::uint32_t kind = dp_unwind_kind(rule);
    if ((kind == DP_CFA_RBP || kind == DP_CFA_DEREF_RBP) && bp_lost_) return false;
    switch (kind) {
      case DP_CFA_RSP:
        cfa = at_.rsp + offset;
        return true;
      case DP_CFA_RBP:
        cfa = at_.rbp + offset;
        return true;
      case DP_CFA_DEREF_RBP:
        return word(at_.rbp + offset, cfa);
      case DP_CFA_DEREF_RSP:
        return word(at_.rsp + offset, cfa);
      case DP_CFA_DEREF_RSP_8:
        if (!word(at_.rsp + offset, cfa)) return false;
        cfa += 8;
        return true;
      case DP_CFA_PLT:
        cfa = at_.rsp + 8 + ((at_.rip & 15) >= dp_unwind_argument(rule) ? 8 : 0);
        return true;
      case DP_CFA_R10:
        cfa = at_.r10 + offset;
        return true;
      case DP_CFA_R13:
        cfa = at_.r13 + offset;
        return true;
      case DP_CFA_RBX:
        cfa = at_.rbx + offset;
        return true;
      default:
        return false;
    }
  }

  bool leave(std::uint32_t rule) {
    std::uint64_t cfa = 0, ip = 0, bp = at_.rbp;
    if (!find_cfa(rule, cfa) || cfa <= at_.rsp || !word(cfa - 8, ip)) return false;
    const std::uint32_t rbp = dp_unwind_rbp(rule);
    if (rbp == DP_RBP_LOST) {
      bp_lost_ = true;
    } else if (rbp != DP_RBP_SAME) {
      const bool by_rbp = dp_rbp_from_rbp(rbp);
      const auto distance = static_cast<std::uint64_t>(std::int64_t{dp_rbp_offset(rbp)});
      bp_lost_ = (by_rbp && bp_lost_) || !word((by_rbp ? at_.rbp : cfa) + distance, bp);
    }
    at_.rip = ip;
    at_.rsp = cfa;
    at_.rbp = bp;
    return true;
  }

  pid_t pid_;
  mutable ProcessMemory memory_;
  ReadAccounts accounts_{kWideReadLimits};
  CodeFiles files_{accounts_};
  CodeMappings mappings_;
  std::map<std::string, UnwindTable> tables_;
  user_regs_struct at_{};
  bool bp_lost_ = false;
};

class Libdw {
 public:
  explicit Libdw(pid_t pid) : pid_(pid) { attach(); }
  ~Libdw() { dwfl_end(dwfl_); }
  Libdw(const Libdw&) = delete;
  Libdw& operator=(const Libdw&) = delete;

  void read_mappings() {
    dwfl_report_begin_add(dwfl_);
    dwfl_linux_proc_report(dwfl_, pid_);
    dwfl_report_end(dwfl_, nullptr, nullptr);
  }
  Stack unwind(pid_t tid) {
    Stack stack;
    stack.whole = dwfl_getthread_frames(dwfl_, tid, &Libdw::note, &stack) == 0;
    return stack;
  }

 private:
  void attach() {
    static char* no_path = nullptr;
    callbacks_.find_elf = dwfl_linux_proc_find_elf;
    callbacks_.find_debuginfo = dwfl_standard_find_debuginfo;
    callbacks_.debuginfo_path = &no_path;
    dwfl_ = dwfl_begin(&callbacks_);
    dwfl_linux_proc_report(dwfl_, pid_);
    dwfl_report_end(dwfl_, nullptr, nullptr);
    dwfl_linux_proc_attach(dwfl_, pid_, true);
  }
  static int note(Dwfl_Frame* frame, void* to) {
    auto* stack = static_cast<Stack*>(to);
    Dwarf_Addr pc = 0;
    bool activation = false;
    if (!dwfl_frame_pc(frame, &pc, &activation) || stack->ips.size() >= kMaxFrames)
      return DWARF_CB_ABORT;
    stack->ips.push_back(pc);
    return DWARF_CB_OK;
  }

  pid_t pid_;
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
};

struct Counts {
  std::size_t stops = 0, stacks = 0, same = 0, frames = 0, whole = 0, undescribed = 0;
  std::size_t libdw_failed = 0, differ = 0;
};

void compare(pid_t tid, const Stack& theirs, const Stack& ours, Counts& counts) {
  ++counts.stacks;
  counts.frames += ours.ips.size();
  counts.whole += ours.whole;
  // libdw tells a thread's start by an undefined return address, too; then both end there.
  std::size_t compared = theirs.ips.size();
  if (!theirs.whole) {
    const bool both = ours.undescribed && theirs.ips.size() == ours.ips.size();
    ++(both ? counts.undescribed : counts.libdw_failed);
    compared = std::min(compared, ours.ips.size());
  }
  bool same = theirs.whole ? theirs.ips.size() == ours.ips.size() : true;
  for (std::size_t i = 0; i < std::min(compared, ours.ips.size()); ++i)
    same = same && theirs.ips[i] == ours.ips[i];
  ++(same ? counts.same : counts.differ);
  if (same) return;
  fmt::print("thread {} differs: libdw {} frames, ours {}{}\n", tid, theirs.ips.size(),
             ours.ips.size(), ours.whole ? "" : " (cut)");
  for (std::size_t i = 0; i < std::max(theirs.ips.size(), ours.ips.size()); ++i)
    fmt::print("  {:3} {:#018x} {:#018x}\n", i, i < theirs.ips.size() ? theirs.ips[i] : 0,
               i < ours.ips.size() ? ours.ips[i] : 0);
}

// Threads that are stopped now; each is let go by resume().
std::vector<pid_t> stop_all(pid_t pid) {
  std::vector<pid_t> stopped;
  auto threads = list_threads(pid);
  if (!threads) return stopped;
  for (pid_t tid : *threads) {
    if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) continue;
    int status = 0;
    if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) == 0 &&
        waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status))
      stopped.push_back(tid);
  }
  return stopped;
}

int run(pid_t pid, std::size_t stops, double seconds) {
  Counts counts;
  OurUnwinder ours(pid);
  Libdw libdw(pid);
  std::mt19937_64 random(std::random_device{}());
  std::exponential_distribution<double> gap(static_cast<double>(stops) / seconds);
  while (counts.stops < stops) {
    std::this_thread::sleep_for(std::chrono::duration<double>(gap(random)));
    const std::vector<pid_t> stopped = stop_all(pid);
    if (stopped.empty()) break;  // it is gone
    ++counts.stops;
    ours.read_mappings();
    libdw.read_mappings();
    for (pid_t tid : stopped) {
      user_regs_struct registers{};
      if (ptrace(PTRACE_GETREGS, tid, nullptr, &registers) != 0) continue;
      const Stack theirs = libdw.unwind(tid);
      compare(tid, theirs, ours.unwind(registers), counts);
    }
    for (pid_t tid : stopped) ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
  }
  fmt::print(
      "{{\"stops\": {}, \"stacks\": {}, \"same\": {}, \"frames\": {}, \"whole\": {}, "
      "\"undescribed\": {}, \"libdw_failed\": {}, \"differ\": {}}}\n",
      counts.stops, counts.stacks, counts.same, counts.frames, counts.whole, counts.undescribed,
      counts.libdw_failed, counts.differ);
  return 0;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: unwind_compare PID STOPS SECONDS\n");
    return 2;
  }
  return dynprof::run(std::atoi(argv[1]), static_cast<std::size_t>(std::atoll(argv[2])),
                      std::atof(argv[3]));
}
