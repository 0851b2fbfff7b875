#include "user/top/open_compiles.h"

#include <algorithm>
#include <chrono>

#include "symbolizer/attribution/compile_lines.h"
#include "symbolizer/python/line_table.h"
#include "user/target/interpreter_walk.h"
#include "user/target/process.h"
#include "user/top/wait_rules.h"

namespace dynprof {
namespace {

using namespace std::chrono_literals;

// A thread that does not stand still for so long is shown as it was seen last.
constexpr std::chrono::milliseconds kLook = 5ms;
constexpr std::size_t kMaxActive = 8192;
constexpr std::size_t kMaxNameLength = 256;
constexpr std::size_t kFramesForWait = 16;
constexpr std::string_view kConvertFrame = "torch/_dynamo/convert_frame.py";

bool is_installed(std::string_view file) {
  return file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos ||
         file.find("/lib/python3.") != std::string_view::npos;
}

// The innermost line of code that was not installed, which is what a user can change; else the innermost.
const UserLine& own_line(const std::vector<UserLine>& lines) {
  auto own = std::find_if(lines.rbegin(), lines.rend(),
                          [](const UserLine& line) { return !is_installed(line.file); });
  return own != lines.rend() ? *own : lines.back();
}

std::string id_of(const CompileNow& compile) {
  std::string id = compile.id.text();
  if (compile.kind == CompileKind::kBackward) return "backward " + id;
  if (compile.kind == CompileKind::kExport) return "export " + id;
  return id;
}

bool is_off_cpu(char state) { return state == 'S' || state == 'D' || state == 'I'; }

}  // namespace

void OpenCompiles::learn_threads() {
  if (learnt_) return;
  learnt_ = true;
  pthreads_.clear();
  for (const RemoteThread& thread : walk_interpreters(view_.objects, view_.runtime.runtime).threads)
    pthreads_[thread.tstate] = thread.pthread;
}

std::uint64_t OpenCompiles::pthread_of(std::uint64_t tstate) {
  if (!pthreads_.contains(tstate)) learn_threads();
  auto found = pthreads_.find(tstate);
  return found == pthreads_.end() ? 0 : found->second;
}

pid_t OpenCompiles::thread_of(std::uint64_t pthread) {
  if (pthread == 0) return 0;
  learn_threads();
  for (auto [tid, tstate] : *states_) {
    auto found = pthreads_.find(tstate);
    if (found != pthreads_.end() && found->second == pthread) return tid;
  }
  return 0;
}

// threading._active: the threads of the module by their ident, which is pthread_self().
std::string OpenCompiles::thread_name(std::uint64_t pthread) {
  if (pthread == 0) return {};
  if (auto known = names_.find(pthread); known != names_.end()) return known->second;
  std::string& name = names_[pthread];
  auto module = view_.objects.find_module(view_.runtime.main_interpreter, "threading");
  auto active = module ? view_.objects.module_get(*module, "_active") : std::nullopt;
  auto entries = active ? view_.values.dict_items(*active, kMaxActive) : std::nullopt;
  if (!entries) return name;
  std::vector<std::uint64_t> keys;
  for (const DictEntry& entry : *entries) keys.push_back(entry.key);
  const std::vector<RemoteValue> idents = view_.values.values(keys);
  for (std::size_t i = 0; i < idents.size(); ++i) {
    if (static_cast<std::uint64_t>(idents[i].integer) != pthread) continue;
    auto text = view_.values.attribute((*entries)[i].value, "_name");
    name = text ? view_.values.read_str(*text, kMaxNameLength).value_or("") : "";
  }
  return name;
}

void OpenCompiles::set_function(OpenCompile& compile, const ThreadMoment& moment,
                                const FinishedRows& finished) {
  if (moment.compile->kind == CompileKind::kBackward) {
    compile.function = finished.function_of(moment.compile->id.frame).value_or(TopPlace());
    return;
  }
  for (const StackFrame& frame : moment.stack.frames) {
    if (!view_.is_function(frame, kConvertFrame, "_compile")) continue;
    auto local = view_.local(frame, "code");
    if (!local) return;
    const RemoteCode code = view_.names.reader().read(local->value);
    if (code.unreadable != Unreadable::kNo) return;
    compile.function = {code.qualname, code.filename, code.first_line};
    return;
  }
}

void OpenCompiles::set_wait(OpenCompile& compile, const RemoteStack& stack) {
  auto stat = read_process_stat(compile.tid);
  if (!stat) return;
  compile.state = stat->state;
  if (!is_off_cpu(stat->state)) return;
  std::vector<WaitFrame> frames;
  for (const StackFrame& frame : stack.frames) {
    if (frames.size() == kFramesForWait) break;
    const RemoteCode& code = view_.names.of(frame);
    frames.push_back({code.qualname, code.filename});
  }
  FoundWait wait = wait_of_thread(view_.runtime.pid, compile.tid, frames);
  compile.wait = wait.wait;
  compile.wait_text = std::move(wait.text);
}

void OpenCompiles::read_compile(pid_t tid, std::uint64_t tstate, const FinishedRows& finished) {
  const auto deadline = std::chrono::steady_clock::now() + kLook;
  const ThreadMoment moment = read_thread_moment(view_, torch_, tid, tstate, deadline);
  if (!moment.compile || !is_valid(moment.compile->id)) return;
  OpenCompile compile;
  compile.tid = tid;
  compile.id = id_of(*moment.compile);
  compile.attempt = moment.compile->attempt;
  compile.age_s = moment.compile->seconds;
  if (moment.compile->phase) compile.phase = phase_text(*moment.compile->phase);
  compile.torch_phases = moment.compile->phases;
  compile.moved = !moment.consistent;
  if (moment.user_code.use) compile.activity = line_use_words(*moment.user_code.use);
  if (!moment.user_code.lines.empty()) {
    const UserLine& line = own_line(moment.user_code.lines);
    compile.at = TopPlace{line.function, line.file, line.line};
  }
  if (moment.consistent) {
    if (auto position = graphs_.of(moment.stack)) {
      compile.node = position->node;
      compile.nodes = position->count;
    }
  }
  set_function(compile, moment, finished);
  set_wait(compile, moment.stack);
  compile.thread = thread_name(pthread_of(tstate));
  found_.push_back(std::move(compile));
}

// The innermost function of the stack that is not installed.
TopPlace OpenCompiles::caller(const RemoteStack& stack) {
  for (const StackFrame& frame : stack.frames) {
    const RemoteCode& code = view_.names.of(frame);
    if (code.unreadable != Unreadable::kNo || is_installed(code.filename)) continue;
    TopPlace place{code.qualname, code.filename, 0};
    if (frame.at.unit != RemoteFrame::kNowhere)
      place.line = line_of_unit(view_.python(), code.line_table, code.first_line, frame.at.unit);
    return place;
  }
  return {};
}

void OpenCompiles::read_waiting(pid_t tid, std::uint64_t tstate, std::uint64_t owner) {
  OpenCompile waiting;
  waiting.tid = tid;
  waiting.wait = TopWait::kCompileLock;
  waiting.lock_holder = thread_of(owner);
  waiting.state = 'S';
  waiting.phase = phase_text(Phase::kWait);
  if (auto stack = view_.stacks.again(tstate)) {
    view_.names.read(*stack);
    waiting.function = caller(*stack);
  }
  waiting.thread = thread_name(pthread_of(tstate));
  found_.push_back(std::move(waiting));
}

std::vector<OpenCompile> OpenCompiles::read(const std::map<pid_t, std::uint64_t>& states,
                                            const FinishedRows& finished) {
  found_.clear();
  states_ = &states;
  learnt_ = false;
  if (!torch_.imported()) return {};
  for (auto [tid, tstate] : states) {
    if (found_.size() == kMaxOpen) break;
    if (torch_.read_open(tid, tstate).compiling()) read_compile(tid, tstate, finished);
  }
  const std::size_t compiling = found_.size();
  const auto lock = states.size() > 1 ? lock_.state() : std::nullopt;
  if (lock && lock->owner != 0) {
    for (auto [tid, tstate] : states) {
      if (found_.size() == compiling + kMaxWaiting) break;
      if (auto owner = lock_.owner_waited_for(tid)) {
        auto open = std::find_if(found_.begin(), found_.end(),
                                 [&](const OpenCompile& other) { return other.tid == tid; });
        if (open == found_.end()) read_waiting(tid, tstate, *owner);
      }
    }
  }
  return std::move(found_);
}

}  // namespace dynprof
