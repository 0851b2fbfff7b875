#include "user/inject/call_on_thread.h"

#include <fmt/format.h>
#include <linux/audit.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>
#include <thread>

#include "user/inject/waiting_thread.h"
#include "user/target/clock.h"
#include "user/target/process.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

// Results of an interrupted system call that only the kernel sees (linux/errno.h).
constexpr std::int64_t kRestartSys = -512, kRestartNoIntr = -513, kRestartNoHand = -514,
                       kRestartBlock = -516;
constexpr std::int64_t kRestartCall = 219;  // restart_syscall
constexpr std::uint64_t kUserCode = 0x33;   // cs of a thread in 64-bit mode
constexpr std::uint64_t kTrap = 0x100, kDirection = 0x400, kAlignment = 0x40000;

constexpr std::uint64_t kInterruptNs = 100'000'000;  // for a thread to stop
constexpr std::uint64_t kNextCallNs = 5'000'000;
constexpr std::uint64_t kPollNs = 15'000;
constexpr std::uint64_t kPassingNs = 50'000'000;
constexpr std::chrono::milliseconds kPause{2};  // between two attempts

template <std::size_t N>
bool any_of(const std::array<long, N>& calls, std::int64_t call) {
  return std::find(calls.begin(), calls.end(), call) != calls.end();
}

// Calls that end with EINTR when their thread is stopped, which a program may not expect.
constexpr std::array<long, 8> kNotInterrupted = {
    SYS_semop,           SYS_semtimedop,   SYS_msgrcv,        SYS_msgsnd,
    SYS_rt_sigtimedwait, SYS_io_getevents, SYS_io_pgetevents, SYS_io_uring_enter};
// Of these EINTR says that nothing was done: they are made again.
constexpr std::array<long, 9> kMadeAgain = {SYS_epoll_wait, SYS_epoll_pwait, 441 /* epoll_pwait2 */,
                                            SYS_read,       SYS_readv,       SYS_recvfrom,
                                            SYS_recvmsg,    SYS_accept,      SYS_accept4};
// Not entered from: the process is another one afterwards, or is copied, or its registers are replaced.
constexpr std::array<long, 9> kNotFrom = {SYS_exit,         SYS_exit_group, SYS_execve,
                                          SYS_execveat,     SYS_fork,       SYS_vfork,
                                          SYS_rt_sigreturn, SYS_clone,      435 /* clone3 */};

enum class Step : std::uint8_t { kDone, kAgain, kFailed };
struct Attempt {
  Step step = Step::kAgain;
  Error why;
  std::uint64_t stopped_ns = 0;
};

void sleep_ns(std::uint64_t ns) {
  const timespec time = {static_cast<time_t>(ns / 1'000'000'000),
                         static_cast<long>(ns % 1'000'000'000)};
  ::nanosleep(&time, nullptr);
}

// One attempt, by a thread that ends with it: the kernel then detaches what it traces, in whatever state.
class Tracer {
 public:
  explicit Tracer(const ThreadEntry& entry) : entry_(entry), tid_(entry.thread) {}

  Attempt run(std::uint64_t until_ns) {
    const auto waits = where_it_waits(entry_.process, tid_);
    if (waits && any_of(kNotInterrupted, waits->call))
      return again("waits in a call that a stop would end");
    if (const auto stat = read_process_stat(tid_); stat && stat->state == 'D')
      return again("waits in the kernel and cannot be stopped");
    if (entry_.locks_free && !entry_.locks_free())
      return again("may hold a lock of its interpreter");
    be_quick();
    if (::ptrace(PTRACE_SEIZE, tid_, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC) != 0)
      return failed(
          errno_error(fmt::format("cannot stop thread {}", tid_),
                      "another program may trace it, or kernel.yama.ptrace_scope forbids it"));
    if (!entry_.unchanged())
      return failed(error(fmt::format("process {} has changed meanwhile", entry_.process)));
    const std::uint64_t asked = monotonic_ns();
    if (::ptrace(PTRACE_INTERRUPT, tid_, 0, 0) != 0)
      return failed(errno_error(fmt::format("cannot stop thread {}", tid_)));
    if (!next_stop(asked + kInterruptNs)) return again("did not stop");
    if (!is_interrupt()) return pass_on("handles or blocks signals");
    return at_interrupt(until_ns);
  }

 private:
  Attempt again(const char* why) const {
    return {Step::kAgain, error(fmt::format("its main thread {}", why)), stopped_ns_};
  }
  Attempt failed(Error why) const { return {Step::kFailed, std::move(why), stopped_ns_}; }

  static void be_quick() {
    ::prctl(PR_SET_TIMERSLACK, 1);
    const sched_param first = {.sched_priority = 1};
    ::sched_setscheduler(0, SCHED_FIFO, &first);
  }

  // Waits for the next stop of the thread; false: none until then. It counts as stopped since it was last
  // seen running.
  bool next_stop(std::uint64_t until_ns) {
    for (stopped_since_ = monotonic_ns();;) {
      const std::uint64_t now = monotonic_ns();
      const pid_t got = ::waitpid(tid_, &status_, __WALL | WNOHANG);
      if (got == tid_) return WIFSTOPPED(status_);
      if (got < 0 || now >= until_ns) return false;
      stopped_since_ = now;
      sleep_ns(kPollNs);
    }
  }
  bool is_interrupt() const {
    return status_ >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status_) == SIGTRAP;
  }
  bool is_call() const { return WSTOPSIG(status_) == (SIGTRAP | 0x80); }

  void resume(int request, int signal = 0) {
    ::ptrace(static_cast<__ptrace_request>(request), tid_, 0, signal);
    stopped_ns_ += monotonic_ns() - stopped_since_;
  }
  // Lets it go on, with the signal it was stopped for.
  Attempt pass_on(const char* why) {
    const bool signal = status_ >> 16 == 0 && !is_call();
    resume(PTRACE_DETACH, signal ? WSTOPSIG(status_) : 0);
    return again(why);
  }
  Attempt let_go(const char* why) {
    resume(PTRACE_DETACH);
    return again(why);
  }

  // A signal that a handler or the kernel would act on now: whether an interrupted call is made again
  // depends on it. And a thread that blocks signals may be in a handler, which may have interrupted
  // anything.
  bool has_signal() const {
    std::uint64_t blocked = 0;
    if (::ptrace(PTRACE_GETSIGMASK, tid_, sizeof blocked, &blocked) != 0 || blocked != 0)
      return true;
    for (const std::uint32_t flags : {0U, static_cast<std::uint32_t>(PTRACE_PEEKSIGINFO_SHARED)}) {
      siginfo_t pending;
      __ptrace_peeksiginfo_args from = {0, flags, 1};
      if (::ptrace(PTRACE_PEEKSIGINFO, tid_, &from, &pending) != 0) return true;
    }
    return false;
  }

  // In a restartable sequence, which the kernel would begin anew after an interruption: with our registers it
  // does not see that it is in one.
  bool in_restartable_sequence() {
    struct {  // ptrace_rseq_configuration of linux/ptrace.h
      std::uint64_t address = 0;
      std::uint32_t size = 0, signature = 0, flags = 0, pad = 0;
    } configuration;
    constexpr auto kGetRseq = static_cast<__ptrace_request>(0x420f);
    if (::ptrace(kGetRseq, tid_, sizeof configuration, &configuration) < 0) return true;
    if (configuration.address == 0) return false;
    const auto sequence =
        ProcessMemory(entry_.process).read<std::uint64_t>(configuration.address + 8);
    return !sequence || *sequence != 0;
  }

  // Whether the system call was made by 64-bit code in the usual way, so that it is made again by going back
  // over its instruction.
  bool is_usual_call(const user_regs_struct& registers, const __ptrace_syscall_info& info) const {
    constexpr std::uint64_t kOtherTable = 0x40000000;  // x32
    return registers.cs == kUserCode && info.arch == AUDIT_ARCH_X86_64 &&
           (registers.orig_rax & kOtherTable) == 0;
  }

  static bool in_any(const std::vector<AddressRange>& ranges, std::uint64_t address) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const AddressRange& range) {
      return range.begin <= address && address < range.end;
    });
  }

  Attempt at_interrupt(std::uint64_t until_ns) {
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, tid_, 0, &registers) != 0)
      return failed(errno_error(fmt::format("cannot read the registers of thread {}", tid_)));
    const auto call = static_cast<std::int64_t>(registers.orig_rax);
    if (call >= 0) {
      __ptrace_syscall_info info{};
      if (has_signal()) return let_go("handles or blocks signals");
      if (::ptrace(PTRACE_GET_SYSCALL_INFO, tid_, sizeof info, &info) <= 0 ||
          !is_usual_call(registers, info))
        return let_go("made a system call in an unusual way");
      const auto result = static_cast<std::int64_t>(registers.rax);
      const bool redo = result == kRestartSys || result == kRestartNoIntr ||
                        result == kRestartNoHand || (result == -EINTR && any_of(kMadeAgain, call));
      if (redo || result == kRestartBlock) {
        registers.rax = redo ? registers.orig_rax : static_cast<std::uint64_t>(kRestartCall);
        registers.rip -= 2;
      }
      return enter(registers);
    }
    const bool in_function = in_any(entry_.functions, registers.rip);
    if (registers.cs == kUserCode && (in_function || in_any(entry_.libraries, registers.rip)) &&
        !has_signal() && (in_function || !in_restartable_sequence()))
      return enter(registers);
    resume(PTRACE_SYSCALL);
    const std::uint64_t call_until = std::min(until_ns, monotonic_ns() + kNextCallNs);
    for (;;) {
      if (!next_stop(call_until)) return again("made no system call and was in no function for it");
      if (is_call()) return at_call();
      if (status_ >> 16 != 0) return pass_on("was stopped by another program");
      resume(PTRACE_SYSCALL, WSTOPSIG(status_));
    }
  }

  Attempt at_call() {
    __ptrace_syscall_info info{};
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, tid_, sizeof info, &info) <= 0 ||
        ::ptrace(PTRACE_GETREGS, tid_, 0, &registers) != 0)
      return let_go("could not be examined");
    const auto call = static_cast<std::int64_t>(registers.orig_rax);
    if (has_signal()) return let_go("handles or blocks signals");
    if (!is_usual_call(registers, info)) return let_go("made a system call in an unusual way");
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      if (call < 0 || any_of(kNotFrom, call))
        return let_go("is in a call that is not entered from");
      registers.rax = registers.orig_rax;
      registers.rip -= 2;
    } else if (info.op != PTRACE_SYSCALL_INFO_EXIT || any_of(kNotFrom, call)) {
      return let_go("is in a call that is not entered from");
    }
    return enter(registers);
  }

  Attempt enter(user_regs_struct registers) {
    if (registers.gs != 0 || registers.gs_base != 0) {
      resume(PTRACE_DETACH);
      return failed(error(fmt::format("thread {} uses the register GS", tid_)));
    }
    if ((registers.eflags & (kTrap | kDirection | kAlignment)) != 0)
      return let_go("has unusual flags set");
    if (entry_.locks_free && !entry_.locks_free())
      return let_go("may hold a lock of its interpreter");
    registers.gs_base = registers.rip;
    registers.rip = entry_.code;
    registers.orig_rax = static_cast<std::uint64_t>(-1);  // no system call is pending any more
    if (::ptrace(PTRACE_SETREGS, tid_, 0, &registers) != 0) {
      Error why = errno_error(fmt::format("cannot change the registers of thread {}", tid_));
      resume(PTRACE_DETACH);
      return failed(std::move(why));
    }
    resume(PTRACE_DETACH);
    const std::uint64_t until = monotonic_ns() + kPassingNs;
    while (!entry_.passed() && monotonic_ns() < until) sleep_ns(kPollNs);
    return {Step::kDone, {}, stopped_ns_};
  }

  const ThreadEntry& entry_;
  pid_t tid_;
  int status_ = 0;
  std::uint64_t stopped_since_ = 0, stopped_ns_ = 0;
};

}  // namespace

Result<std::uint64_t> enter_code(const ThreadEntry& entry, std::chrono::milliseconds patience,
                                 const std::function<bool()>& stop_requested) {
  const std::uint64_t until =
      monotonic_ns() + static_cast<std::uint64_t>(patience.count()) * 1'000'000;
  std::uint64_t longest = 0;
  for (;;) {
    Attempt attempt;
    try {
      std::thread([&] { attempt = Tracer(entry).run(until); }).join();
    } catch (const std::system_error&) {
      return error("no thread could be started to stop the target");
    }
    longest = std::max(longest, attempt.stopped_ns);
    if (attempt.step == Step::kDone) return longest;
    if (attempt.step == Step::kFailed) return attempt.why;
    if (monotonic_ns() >= until || (stop_requested && stop_requested())) {
      attempt.why.what = fmt::format("process {} came to no place for it in {} ms: {}",
                                     entry.process, patience.count(), attempt.why.what);
      return attempt.why;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace dynprof
