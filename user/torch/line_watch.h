// The user's lines that compiles are at, and who waits for the compile lock: read from the target's
// memory some times a second while it compiles, by a thread of its own. No probe can tell either: a line
// is in objects of torch's (an InstructionTranslator, an FX node), and waiting is the absence of events.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "user/live/user_code.h"
#include "user/target/python_runtime.h"
#include "user/target/torch_threads.h"

namespace dynprof {

// A thread that compiles.
struct LineReading {
  std::uint64_t time_ns = 0;
  std::uint64_t weight_ns = 0;  // since the reading before: the time it stands for
  pid_t tid = 0;
  TorchIds ids;  // the compile it is in
  LineUse use = LineUse::kTracing;
  UserLine line;       // the innermost of the user's own
  std::string module;  // see UserCode
};

// A thread that waits for the compile lock.
struct LockReading {
  std::uint64_t time_ns = 0;
  std::uint64_t weight_ns = 0;  // as in LineReading
  pid_t tid = 0;
  pid_t holder = 0;  // 0: not known
};

struct CompileReadings {
  std::vector<LineReading> lines;
  std::vector<LockReading> locks;
  // That Python has for threads.
  std::map<pid_t, std::string> names;
};

class LineWatch {
 public:
  // `packages`: installed ones that are the user's own code, see is_in_package().
  // `all_lines`: as many readings a second in a long compile as at its begin.
  explicit LineWatch(const PythonRuntime& runtime, std::vector<std::string> packages = {},
                     bool all_lines = false);
  ~LineWatch();
  LineWatch(const LineWatch&) = delete;
  LineWatch& operator=(const LineWatch&) = delete;

  // Something of a compile happened: it reads from now on, until nothing compiles.
  void wake();
  CompileReadings take();

 private:
  struct View;
  void run();
  std::map<pid_t, std::string> read_names(View& view) const;
  // Whether a thread compiles.
  bool read(View& view, std::uint64_t since_ns, CompileReadings& out) const;

  const PythonRuntime runtime_;
  const std::vector<std::string> packages_;
  const bool all_lines_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool awake_ = false;
  bool stop_ = false;
  CompileReadings readings_;
  std::thread thread_;
};

}  // namespace dynprof
