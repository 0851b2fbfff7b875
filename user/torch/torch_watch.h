// Torch's phases and thread-locals of one process: tells the kernel side where the thread-locals lie
// (source T), and turns torch's calls of time.time_ns (Probe::kClockRead) into exact edges of the
// recording (source E). Threads are looked at when they are first seen to compile, and again when
// their dicts moved. Everything is gone with this object, and with our process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/target/torch_threads.h"
#include "user/torch/inline_watch.h"
#include "user/torch/open_phases.h"
#include "user/torch/thread_ids.h"

namespace dynprof {

// What a TorchWatch needs of the process it belongs to; valid during one call.
struct WatchedProcess {
  RemoteObjects& objects;
  const PythonRuntime& python;
  const dp_torch_layout& torch;
  RecordingWriter& writer;
  KernelSide& kernel;
  ThreadIds& threads;

  ThreadId thread(pid_t tid) const { return threads.of(tid, writer); }
};

class TorchWatch {
 public:
  TorchWatch() = default;
  TorchWatch(TorchWatch&&) = default;
  TorchWatch& operator=(TorchWatch&&) = default;

  // Once, just after the probe on time.time_ns is there: which phases are open on each thread? What begins
  // and ends from then on comes to on_phase().
  void note_open_phases(RemoteObjects& objects, const PythonRuntime& python,
                        const dp_torch_layout& torch);
  // Sets watchpoints, not armed, so that the first compile of a thread finds them.
  void prepare_inlined(RemoteObjects& objects, const PythonRuntime& python,
                       const dp_torch_layout& torch, KernelSide& kernel);
  // Looks at all threads that have a Python state.
  void look_at_all(const WatchedProcess& process);
  // At one that compiles and is not known, or whose dicts moved; not more often than makes sense.
  void look_at(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns);

  // Torch calls time.time_ns. `name` stands in for one that the event does not bring.
  // True: with this the thread's compile is over.
  bool on_phase(const WatchedProcess& process, const dp_phase_event& event, std::string_view name);
  // `code`: the recording's id of the function that a begin is of.
  void on_inline(const WatchedProcess& process, const dp_inline_event& event, CodeId code);
  // No more phases come: writes what is open as open until now.
  void finish(const WatchedProcess& process, std::uint64_t now_ns);

  // Whether a phase is open on any thread.
  bool compiling() const;
  // Why user functions are not counted, once per reason; "" otherwise.
  std::string take_problem();
  std::uint64_t lost_edges() const { return lost_; }
  // How often Dynamo began to trace before its user functions were counted.
  std::uint64_t armed_late() const { return armed_late_; }

 private:
  struct Thread {
    dp_torch_thread place = {};  // where its thread-locals lie
    bool complete = false;       // both of them
    std::uint64_t next_look_ns = 0;
    std::uint64_t backoff_ns = 0;
    OpenPhases phases;
    // What was open at that time: events before it are part of that.
    std::vector<std::string> noted;
    TorchState noted_state;
    std::uint64_t since_ns = 0;
    ContextId context = 0;  // what torch said at the last edge
    InlineWatch inlined;
    std::uint64_t second = 0;  // the rate of hits
    std::uint32_t hits = 0;
  };

  void look(const WatchedProcess& process, pid_t tid, std::uint64_t tstate);
  void tell_inlined(const Result<void>& result);
  void write_open_phases(const WatchedProcess& process, pid_t tid, Thread& thread);
  ContextId context(const WatchedProcess& process, const dp_phase_event& event,
                    std::string_view name, Thread& thread);
  void phase_begins(const WatchedProcess& process, const dp_phase_event& event,
                    std::string_view name, SpanEdge edge, Thread& thread);
  void phase_ends(const WatchedProcess& process, const dp_phase_event& event, std::string_view name,
                  SpanEdge edge, Thread& thread);
  void take_breaks(const WatchedProcess& process, const dp_phase_event& event, const SpanEdge& edge,
                   const Thread& thread);
  void update_inlined(const WatchedProcess& process, pid_t tid, Thread& thread,
                      std::uint64_t time_ns);
  void leave_inlined(const WatchedProcess& process, pid_t tid, Thread& thread, std::size_t keep,
                     std::uint64_t now_ns);
  void tell_once(bool& told, std::string problem);

  TorchLocals locals_;
  std::map<pid_t, Thread> threads_;
  std::optional<std::uint64_t> breaks_;  // of torch's list of graph breaks, how many are known
  std::string problem_;
  bool told_inline_ = false;
  std::uint64_t lost_ = 0;
  std::uint64_t armed_late_ = 0;
};

// As the recording keeps it; names are left out.
TorchState recorded_state(const dp_torch_state& torch);

}  // namespace dynprof
