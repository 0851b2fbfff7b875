#include "user/inject/remote_script.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/base/unique_fd.h"
#include "user/inject/folder_guard.h"
#include "user/inject/target_folder.h"
#include "user/inject/target_memory.h"
#include "user/target/awaiting_target.h"
#include "user/target/process.h"
#include "user/target/python_layouts.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kPleaseStop = 1U << 5;  // _PY_EVAL_PLEASE_STOP_BIT of pycore_ceval.h
constexpr std::uint64_t kMaxPathBytes = 4096;   // 512 in 3.14 and 3.15
constexpr std::uint64_t kMaxStruct = 1U << 24;
constexpr std::chrono::milliseconds kPoll{2};
// A script that was taken up when it was cancelled still has to be opened.
constexpr std::chrono::milliseconds kAfterCancel{300};
// From when the interpreter has taken up the request until it opens the script. An audit hook may refuse that.
constexpr std::chrono::milliseconds kUntilOpened{2000};
constexpr const char* kScript = "load.py";
constexpr std::string_view kLoadedWord = "loaded";

// Fields of _Py_DebugOffsets by their number, all of them u64.
constexpr std::size_t kInterpreterSize = 6, kThreadsMain = 10, kThreadSize = 22;
struct Version {
  std::uint16_t python;
  std::size_t support;  // of debugger_support.eval_breaker; five more follow
};
constexpr std::array kVersions = {Version{python_version(3, 14), 89},
                                  Version{python_version(3, 15), 105}};

std::string byte_literal(std::string_view text) {
  std::string literal = "b\"";
  for (const char c : text) literal += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return literal + "\"";
}

// The request in the thread state of the main thread.
class Request {
 public:
  Request(pid_t pid, std::uint64_t thread, const ScriptPlaces& places)
      : memory_(pid), thread_(thread), places_(places) {}

  // In the order of the interpreter's documentation: the path, the flag, then the eval breaker.
  Result<void> make(const std::string& script, Clock::time_point until) {
    std::vector<std::byte> path(script.size() + 1);
    std::memcpy(path.data(), script.c_str(), path.size());
    if (path.size() > places_.path_bytes)
      return error(fmt::format("the path {} is too long for the interpreter", script));
    TRY(await_others(until));
    const auto pending = pending_now();
    if (!pending) return error(fmt::format("cannot read the memory of process {}", memory_.pid()));
    if (*pending != 0)
      return error(
          fmt::format("process {} has the script of another program to run", memory_.pid()));
    TRY(write_data(memory_.pid(), thread_ + places_.path, path));
    TRY(write_value<std::int32_t>(memory_.pid(), thread_ + places_.pending, 1));
    return raise_breaker();
  }

  std::optional<std::int32_t> pending_now() {
    return memory_.read<std::int32_t>(thread_ + places_.pending);
  }
  Result<void> cancel() {
    return write_value<std::int32_t>(memory_.pid(), thread_ + places_.pending, 0);
  }

 private:
  // The script of another program is run first; that program may have ended before it raised the word.
  Result<void> await_others(Clock::time_point until) {
    for (auto pending = pending_now(); pending && *pending != 0 && Clock::now() < until;
         pending = pending_now()) {
      TRY(raise_breaker());
      std::this_thread::sleep_for(kPoll);
    }
    return {};
  }

  // The interpreter changes other bits of this word at any time, with atomic operations that are not
  // possible from here. Only the byte with the events is written, right after it was read: the version of
  // sys.monitoring's instruments is in the others.
  Result<void> raise_breaker() {
    const auto events = memory_.read<std::uint8_t>(thread_ + places_.eval_breaker);
    if (!events) return error(fmt::format("cannot read the memory of process {}", memory_.pid()));
    return write_value<std::uint8_t>(memory_.pid(), thread_ + places_.eval_breaker,
                                     static_cast<std::uint8_t>(*events | kPleaseStop));
  }

  ProcessMemory memory_;
  std::uint64_t thread_;
  ScriptPlaces places_;
};

// Whether a file has been opened since.
class OpenWatch {
 public:
  OpenWatch(pid_t pid, const std::string& path)
      : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    const AwaitingTarget awaiting(pid);
    if (!events_ || ::inotify_add_watch(events_.get(), path.c_str(), IN_OPEN) < 0) opened_ = true;
  }
  // True also where the kernel has no room for another watch.
  bool opened() {
    std::array<char, 512> buffer;
    opened_ = opened_ || ::read(events_.get(), buffer.data(), buffer.size()) > 0;
    return opened_;
  }

 private:
  UniqueFd events_;
  bool opened_ = false;
};

// What the script has written so far; its process may write anything.
std::string read_result(int file) {
  std::array<char, 512> buffer;
  const ssize_t got = ::pread(file, buffer.data(), buffer.size(), 0);
  return got <= 0 ? std::string() : std::string(buffer.data(), static_cast<std::size_t>(got));
}

Error not_loaded(pid_t pid, const std::string& why) {
  return error(fmt::format("the interpreter of process {} could not load the library: {}", pid,
                           escape_terminal(why)));
}

}  // namespace

Result<ScriptPlaces> parse_script_places(std::span<const std::byte> runtime) {
  const auto field = [&](std::size_t number) {
    std::uint64_t value = 0;
    if ((number + 1) * sizeof value <= runtime.size())
      std::memcpy(&value, runtime.data() + number * sizeof value, sizeof value);
    return value;
  };
  if (runtime.size() < kDebugCookie.size() ||
      std::memcmp(runtime.data(), kDebugCookie.data(), kDebugCookie.size()) != 0)
    return error("_PyRuntime does not begin with _Py_DebugOffsets");
  const auto python = static_cast<std::uint16_t>(field(1) >> 16);
  for (const Version& version : kVersions) {
    if (version.python != python) continue;
    const std::uint64_t interpreter = field(kInterpreterSize), thread = field(kThreadSize);
    const std::uint64_t support = field(version.support + 1);
    ScriptPlaces places;
    places.main_thread = field(kThreadsMain);
    places.enabled = field(version.support + 2);
    places.eval_breaker = field(version.support);
    places.pending = support + field(version.support + 3);
    places.path = support + field(version.support + 4);
    places.path_bytes = field(version.support + 5);
    const auto fits = [](std::uint64_t at, std::uint64_t bytes, std::uint64_t size) {
      return size <= kMaxStruct && at <= size && bytes <= size - at && at != 0;
    };
    if (!fits(places.main_thread, 8, interpreter) || !fits(places.enabled, 4, interpreter) ||
        !fits(places.eval_breaker, 8, thread) || !fits(places.pending, 4, thread) ||
        !fits(places.path, places.path_bytes, thread) || places.path_bytes < 64 ||
        places.path_bytes > kMaxPathBytes || support > kMaxStruct || places.eval_breaker % 8 != 0 ||
        places.pending % 4 != 0 || places.enabled % 4 != 0 || places.main_thread % 8 != 0)
      return error("_Py_DebugOffsets has no plausible debugger support");
    return places;
  }
  return error(fmt::format("_Py_DebugOffsets of Python {}.{} has no known debugger support",
                           python >> 8, python & 0xff));
}

Result<ScriptPlaces> find_script_places(const PythonRuntime& python) {
  ProcessMemory memory(python.pid);
  std::array<std::byte, kDebugOffsetsBytes> head;
  if (!memory.read(python.runtime, head))
    return error(fmt::format("cannot read _PyRuntime of process {}", python.pid));
  ASSIGN_OR_RETURN(const ScriptPlaces places, parse_script_places(head));
  const auto enabled = memory.read<std::int32_t>(python.main_interpreter + places.enabled);
  if (!enabled || *enabled != 1)
    return error(
        fmt::format("remote debugging is off in the interpreter of process {}", python.pid),
        "start the job without PYTHON_DISABLE_REMOTE_DEBUG and -X disable-remote-debug");
  return places;
}

// It leaves no name and no module behind. A KeyboardInterrupt that arrives while it runs is for the program.
std::string loading_script(const std::string& library, const std::string& result, pid_t pid) {
  return fmt::format(
      R"(def load():
    import os, sys
    if os.getpid() != {}:
        return
    known = "_ctypes" in sys.modules
    interrupted = False
    try:
        import _ctypes
        start = _ctypes.dlsym(_ctypes.dlopen({}, {}), "InitializeInjection")
        _ctypes.call_function(start, ())
        text = "{}"
    except KeyboardInterrupt:
        text, interrupted = "it was interrupted", True
    except BaseException as problem:
        text = type(problem).__name__ + ": " + str(problem)
    try:
        if not known:
            sys.modules.pop("_ctypes", None)
        with open({}, "r+b", 0) as file:
            file.write(text.encode("utf-8", "backslashreplace")[:400])
    except BaseException:
        pass
    if interrupted:
        import _thread
        _thread.interrupt_main()


load()
)",
      pid, byte_literal(library), RTLD_NOW | RTLD_NODELETE, kLoadedWord, byte_literal(result));
}

Result<Loaded> load_by_script(const PythonRuntime& python, const std::string& library,
                              const LoadLimits& limits) {
  const pid_t pid = python.pid;
  ASSIGN_OR_RETURN(const ScriptPlaces places, find_script_places(python));
  ProcessMemory memory(pid);
  const auto thread = memory.read_pointer(python.main_interpreter + places.main_thread);
  if (!thread) return error(fmt::format("the interpreter of process {} has no main thread", pid));

  const std::vector<pid_t> ids = namespace_ids(pid, pid);
  if (ids.empty()) return error(fmt::format("/proc/{}/status is not as expected", pid));
  ASSIGN_OR_RETURN(TargetFolder folder, TargetFolder::create(pid));
  std::string path = path_for_target(pid, library).value_or("");
  if (path.empty()) {
    const std::string name(base_name(library));
    TRY(folder.put_copy(name, library));
    path = folder.path_of(name);
  }
  TRY(folder.put_text(kScript, loading_script(path, folder.path_of(kAnswerFile), ids.back())));
  // Last: once it is there, the folder stays until it has been written to, also if this program is killed.
  ASSIGN_OR_RETURN(const UniqueFd result, folder.put_empty(kAnswerFile));

  OpenWatch script(pid, folder.own_path_of(kScript));
  Request request(pid, *thread, places);
  auto deadline = Clock::now() + limits.safe_point;
  TRY(request.make(folder.path_of(kScript), deadline));
  for (bool begun = false, opened = false;;) {
    if (const std::string text = read_result(result.get()); text == kLoadedWord)
      return Loaded{.how = "by its interpreter's remote debugging interface"};
    else if (!text.empty())
      return not_loaded(pid, text);
    const auto pending = request.pending_now();
    if (!pending) return error(fmt::format("process {} has ended", pid));
    if (*pending == 0 && !begun) {
      begun = true;
      deadline = Clock::now() + kUntilOpened;
    }
    if (begun && !opened && script.opened()) {
      opened = true;
      deadline = Clock::now() + limits.loading;
    }
    const bool stop = limits.stop();
    if (stop || Clock::now() >= deadline) {
      if (begun && !opened && !stop)
        return not_loaded(
            pid, "it did not open the script for that; an audit hook of the program may refuse it");
      if (begun && !stop) return not_loaded(pid, "it began, and did not end in time");
      TRY(request.cancel());
      std::this_thread::sleep_for(kAfterCancel);
      if (read_result(result.get()) == kLoadedWord)
        return Loaded{.how = "by its interpreter's remote debugging interface"};
      if (stop) return error("stopped while the library was being loaded");
      return no_safe_point(fmt::format("the main thread of process {} ran no Python code", pid),
                           limits);
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace dynprof
