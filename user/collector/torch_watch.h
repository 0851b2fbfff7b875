// Torch's thread-locals of one process, watched: tells the kernel side where they lie (source T), and
// sets a hardware watchpoint on each compiling thread's list of open phases, whose hits become exact
// edges of the recording (source E). Threads are looked at when they are seen to compile, and again
// when their dicts moved. Where being watched costs a thread (watchpoint_cost.h), one that has not
// compiled for half a minute rests: its watchpoints are not armed.
// Everything is gone with this object, and with our process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/collector/inlined_calls.h"
#include "user/collector/kernel_side.h"
#include "user/target/torch_threads.h"

namespace dynprof {

// What a TorchWatch needs of the process it belongs to; valid during one call.
struct WatchedProcess {
  RemoteObjects& objects;
  const PythonRuntime& python;
  const dp_torch_layout& torch;
  RecordingWriter& writer;
  KernelSide& kernel;
  std::function<ThreadId(pid_t)> thread;                     // the recording's id of a thread
  std::function<CodeId(std::uint64_t, std::uint32_t)> code;  // ... of a code object, by identity
};

class TorchWatch {
 public:
  TorchWatch() = default;
  TorchWatch(TorchWatch&&) = default;
  TorchWatch& operator=(TorchWatch&&) = default;

  // Looks at all threads that have a Python state.
  void look_at_all(const WatchedProcess& process, std::uint64_t now_ns);
  // At one that compiles and is not known, or whose dicts moved; not more often than makes sense.
  void look_at(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns);
  // Something happened on this thread: the next look_at() looks.
  void forget_backoff(pid_t tid) { threads_[tid].next_look_ns = 0; }
  // It was looked at and is not watched: its list of phases was not there yet, or is another one now.
  bool lacks_watch(pid_t tid) const {
    auto at = threads_.find(tid);
    return at != threads_.end() && !at->second.watch && !at->second.given_up;
  }
  // Lets threads rest that do not compile: only where being watched makes their page faults `cost` times
  // as dear, and something will call wake().
  void rest(const WatchedProcess& process, std::uint64_t now_ns, double cost);
  bool rests(pid_t tid) const;
  // The thread begins to compile.
  void wake(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns);
  void on_phase(const WatchedProcess& process, const dp_phase_event& event);
  void on_inline(const WatchedProcess& process, const dp_inline_event& event);
  void on_break(const WatchedProcess& process, const dp_break_event& event);
  // The innermost of `depth` open phases is called so, another source says.
  void name_innermost(const WatchedProcess& process, pid_t tid, std::uint32_t depth,
                      std::string_view name);
  // Asks the target's memory for names that have not come yet.
  void ask_for_names(const WatchedProcess& process);
  // Writes what waits for its name and ends all watches.
  void finish(const WatchedProcess& process, std::uint64_t now_ns);

  // Why a thread has no watchpoint, once per reason; "" otherwise.
  std::string take_problem();
  std::uint64_t lost_edges() const { return lost_; }
  std::size_t watched() const { return watched_; }

 private:
  struct Thread {
    std::uint64_t list = 0;  // watched list, 0: none
    Watchpoint watch;
    dp_torch_thread place = {};       // where its thread-locals lie
    std::vector<StringId> open;       // names of the open phases, 0: not known
    std::optional<SpanEdge> unnamed;  // the last begin: its name comes with the next hit
    std::uint64_t since_ns = 0;       // hits before this are in `open` already
    std::uint64_t next_look_ns = 0;
    std::uint64_t backoff_ns = 0;
    std::uint64_t second = 0;  // the rate of hits
    std::uint32_t hits = 0;
    bool given_up = false;
    std::optional<std::uint32_t> slot;  // where the kernel side keeps how many phases are open
    bool resting = false;
    std::uint64_t last_hit_ns = 0;
    Watchpoint breaks;
    Watchpoint inline_begin, inline_end;
    ContextId context = 0;  // what torch said at the last edge
    InlinedCalls inlined;   // user functions being traced
  };

  void look(const WatchedProcess& process, pid_t tid, std::uint64_t tstate, std::uint64_t now_ns);
  void watch(const WatchedProcess& process, pid_t tid, Thread& thread, std::uint64_t list);
  void begin_watch(const WatchedProcess& process, pid_t tid, Thread& thread,
                   const TorchThreadState& state, std::uint64_t now_ns);
  void end_watch(const WatchedProcess& process, pid_t tid, Thread& thread, std::uint64_t now_ns);
  bool begin_hits(const WatchedProcess& process, pid_t tid, Thread& thread);
  static void arm(const Thread& thread, bool on);
  StringId name_now(const WatchedProcess& process, const Thread& thread);
  bool too_fast(Thread& thread, std::uint64_t now_ns);
  void watch_breaks(const WatchedProcess& process, pid_t tid, Thread& thread);
  void watch_inline(const WatchedProcess& process, pid_t tid, Thread& thread);
  static void write_watch_end(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns);
  void leave_inlined(const WatchedProcess& process, pid_t tid, Thread& thread, std::size_t keep,
                     std::uint64_t now_ns);
  void name_last(const WatchedProcess& process, Thread& thread, StringId name);
  static ContextId context(const WatchedProcess& process, const dp_torch_state& torch);

  TorchLocals locals_;
  std::map<pid_t, Thread> threads_;
  std::string problem_;
  bool told_ = false;
  bool told_inline_ = false;
  bool told_breaks_ = false;
  bool told_rest_ = false;
  std::uint64_t lost_ = 0;
  std::size_t watched_ = 0;
};

// As the recording keeps it; names are left out.
TorchState recorded_state(const dp_torch_state& torch);

}  // namespace dynprof
