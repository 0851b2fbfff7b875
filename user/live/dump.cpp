#include "user/live/dump.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "symbolizer/python/line_table.h"
#include "user/live/compile_lock.h"
#include "user/live/thread_moment.h"
#include "user/preflight/check_target.h"
#include "user/target/bounded_memory.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxThreads = 4096;
constexpr std::size_t kMaxNameLength = 4096;
constexpr auto kTimeToRead = std::chrono::milliseconds(500);
constexpr auto kFirstLook = std::chrono::milliseconds(5);

class Dumper {
 public:
  Dumper(RemoteMemory& memory, RemoteObjects& objects, const PythonRuntime& runtime)
      : view_(memory, objects, runtime), torch_(view_), lock_(view_), graphs_(view_) {}

  void read(ProcessDump& dump) {
    deadline_ = std::chrono::steady_clock::now() + kTimeToRead;
    if (const TorchTarget* torch = torch_.torch()) dump.torch = torch->version;
    std::map<pid_t, std::uint64_t> states = find_threads(dump);
    for (auto [tid, tstate] : states) {
      ThreadDump thread;
      thread.tid = tid;
      auto name = names_.find(tid);
      if (name != names_.end()) thread.name = std::move(name->second);
      read_thread(tstate, thread,
                  std::min(deadline_, std::chrono::steady_clock::now() + kFirstLook));
      dump.threads.push_back(std::move(thread));
    }
    read_moved_again(dump.threads, states);
    auto lock = lock_.state();
    auto holder = lock ? by_pthread_.find(lock->owner) : by_pthread_.end();
    if (holder != by_pthread_.end()) dump.compile_lock_holder = holder->second;
  }

 private:
  std::map<pid_t, std::uint64_t> find_threads(ProcessDump& dump) {
    const PythonRuntime& runtime = view_.runtime;
    std::map<pid_t, std::uint64_t> states = thread_states(view_.objects, runtime);
    if (auto all = list_threads(runtime.pid)) {
      dump.other_threads = all->size() - std::min(all->size(), states.size());
    }
    std::unordered_map<std::uint64_t, std::uint64_t> pthreads;  // by thread state
    for (const RemoteThread& thread : walk_interpreters(view_.objects, runtime.runtime).threads) {
      if (thread.interpreter != runtime.main_interpreter) ++dump.elsewhere;
      pthreads[thread.tstate] = thread.pthread;
    }
    while (states.size() > kMaxThreads) {
      states.erase(std::prev(states.end()));
      ++dump.threads_dropped;
    }
    for (auto [tid, tstate] : states) {
      auto pthread = pthreads.find(tstate);
      if (pthread != pthreads.end() && pthread->second != 0) by_pthread_[pthread->second] = tid;
    }
    read_names();
    return states;
  }

  // threading._active: the threads of the module by their ident, which is pthread_self().
  void read_names() {
    auto module = view_.objects.find_module(view_.runtime.main_interpreter, "threading");
    auto active = module ? view_.objects.module_get(*module, "_active") : std::nullopt;
    auto entries = active ? view_.values.dict_items(*active, 2 * kMaxThreads) : std::nullopt;
    for (const DictEntry& entry : entries.value_or(std::vector<DictEntry>())) {
      auto ident = view_.values.read_int(entry.key);
      auto tid = ident ? by_pthread_.find(static_cast<std::uint64_t>(*ident)) : by_pthread_.end();
      if (tid == by_pthread_.end()) continue;
      auto name = view_.values.attribute(entry.value, "_name");
      auto text = name ? view_.values.read_str(*name, kMaxNameLength) : std::nullopt;
      if (text) names_[tid->second] = std::move(*text);
    }
  }

  // The time that is left, in equal parts for those that moved.
  void read_moved_again(std::vector<ThreadDump>& threads,
                        const std::map<pid_t, std::uint64_t>& states) {
    auto moved = [](const ThreadDump& thread) { return !thread.consistent; };
    auto left = std::count_if(threads.begin(), threads.end(), moved);
    for (ThreadDump& thread : threads) {
      if (thread.consistent) continue;
      auto now = std::chrono::steady_clock::now();
      if (now >= deadline_) return;
      read_thread(states.at(thread.tid), thread, now + (deadline_ - now) / left--);
    }
  }

  void read_thread(std::uint64_t tstate, ThreadDump& thread, Deadline deadline) {
    ThreadMoment moment;
    do {
      moment = read_thread_moment(view_, torch_, thread.tid, tstate, deadline);
    } while (!moment.consistent && std::chrono::steady_clock::now() < deadline);
    thread.consistent = moment.consistent;
    thread.compile = std::move(moment.compile);
    thread.user_code = std::move(moment.user_code);
    thread.graph = {};
    if (moment.consistent && thread.compile)
      thread.graph = graphs_.of(moment.stack).value_or(GraphPosition());
    thread.frames.clear();
    for (const StackFrame& frame : moment.stack.frames) thread.frames.push_back(described(frame));
    thread.truncated = moment.stack.truncated;
    thread.waits_for_compile_lock = lock_.owner_waited_for(thread.tid).has_value();
    auto stat = read_process_stat(thread.tid);
    if (stat) {
      thread.state = stat->state;
      thread.comm = stat->comm;
    }
  }

  DumpFrame described(const StackFrame& frame) {
    const RemoteCode& code = view_.names.of(frame);
    DumpFrame out;
    out.unreadable = code.unreadable;
    if (code.unreadable != Unreadable::kNo) return out;
    out.function = code.qualname;
    out.file = code.filename;
    out.first_line = code.first_line;
    out.line = frame.at.unit == RemoteFrame::kNowhere
                   ? 0
                   : line_of_unit(view_.python(), code.line_table, code.first_line, frame.at.unit);
    return out;
  }

  TargetView view_;
  TorchReader torch_;
  CompileLock lock_;
  GraphPositions graphs_;
  Deadline deadline_;
  std::unordered_map<std::uint64_t, pid_t> by_pthread_;
  std::map<pid_t, std::string> names_;
};

// Those that compile, those that wait to, the others; each by thread id.
int rank(const ThreadDump& thread) {
  if (thread.compile) return is_valid(thread.compile->id) ? 0 : 1;
  return thread.waits_for_compile_lock ? 2 : 3;
}

}  // namespace

Result<ProcessDump> dump_process(pid_t pid) {
  auto begin = std::chrono::steady_clock::now();
  TRY(check_target(pid));
  ASSIGN_OR_RETURN(PythonRuntime runtime, discover_python(pid));
  ProcessDump dump;
  dump.pid = pid;
  dump.command = read_command_line(pid);
  dump.python = runtime.version;
  ProcessMemory process(pid);
  // However objects point at each other, reading them ends.
  BoundedMemory memory(process, 300'000, 512 << 20);
  RemoteObjects objects(memory, runtime.layout);
  objects.set_str_type(runtime.str_type);
  Dumper(process, objects, runtime).read(dump);
  TRY(check_target(pid));  // it may have ended meanwhile
  if (memory.exhausted())
    dump.problems.emplace_back("the read limit was reached: parts are missing");
  if (dump.threads.empty()) dump.problems.emplace_back("it no longer has Python threads");
  std::stable_sort(dump.threads.begin(), dump.threads.end(),
                   [](const ThreadDump& a, const ThreadDump& b) { return rank(a) < rank(b); });
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  dump.seconds = took.count();
  return dump;
}

}  // namespace dynprof
