// What one refresh of `top` read of a process, as plain data. The reader fills it, the model compares it with
// the readings before. Every text may come from the target and is not escaped yet.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

struct TopTarget {
  pid_t pid = 0;
  std::string command;
  std::string python;                // "3.11.7"
  std::optional<std::string> torch;  // its version, "" when unknown; nullopt: not imported
  char state = '?';                  // of /proc/PID/stat
  std::size_t threads = 0;
  double uptime_s = 0;
  double cpu_s = 0;  // user and system time of all its threads, ended ones too
  std::uint64_t rss_bytes = 0;
  std::uint64_t peak_bytes = 0;  // of the resident set; 0: not known
};

// What a thread that is off its CPU waits for, by its Python frames and its system call.
enum class TopWait : std::uint8_t {
  kNone,         // it runs, or is about to
  kCompileLock,  // torch's, held by another thread
  kChild,        // a child process that it started
  kCompilePool,  // Inductor's threads or processes that compile kernels
  kFileLock,     // held by another process
  kOther,        // see `wait_text`
};

struct TopPlace {
  std::string function;
  std::string file;
  std::int64_t line = 0;  // 0: not known
  bool operator==(const TopPlace&) const = default;
};

struct OpenCompile {
  pid_t tid = 0;
  std::string thread;  // its name
  std::string id;      // "0/0", "backward 0/0"; "": the thread waits for the lock to begin one
  std::int32_t attempt = -1;
  TopPlace function;                      // what is compiled; of a thread that waits: who called it
  std::optional<double> age_s;            // since torch began it
  std::string phase;                      // our word for the innermost phase; "": not known
  std::vector<std::string> torch_phases;  // torch's names, outermost first
  std::string activity;                   // "tracing", "lowering", ...: what is done with `at`
  std::optional<TopPlace> at;             // the user's line it is at
  std::size_t node = 0;  // of the graph that is being lowered, from 1; 0: not known
  std::size_t nodes = 0;
  bool moved = false;  // it moved while it was read: `at` and `node` may be missing
  char state = '?';    // of the thread
  TopWait wait = TopWait::kNone;
  std::string wait_text;  // of kOther: "a future", "a pipe"
  pid_t lock_holder = 0;  // of kCompileLock; 0: not known
};

struct FinishedCompile {
  std::string id;
  TopPlace function;
  std::optional<std::int64_t> end_us;            // of the epoch
  double wall_s = 0;                             // 0: not known
  std::vector<std::pair<Phase, double>> phases;  // seconds without what is nested, largest first
  std::string cache;                             // "hit", "miss", "part", "" when there was none
  std::string recompile_reason;
  std::string failure;
};

struct TopProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t started_by = 0;  // thread of the parent
  std::uint64_t start_ticks = 0;
  std::string title;    // "g++ main.cpp"
  std::string purpose;  // "compiler", "compile worker", ...
  char state = '?';
  double cpu_s = 0;
  double age_s = 0;
  std::uint64_t rss_bytes = 0;
};

// Times of one Python function. In the last kTopWindowSeconds, and since sampling began; seconds, of all threads
// together. "All" is with the functions that it called.
struct TopFunction {
  TopPlace place;     // `line`: where the function begins
  bool user = false;  // the user's own code
  struct Times {
    double cpu_self_s = 0;
    double cpu_all_s = 0;
    double wait_self_s = 0;
    double wait_all_s = 0;
  };
  Times now, total;
};
inline constexpr std::uint64_t kTopWindowSeconds = 10;

struct TopFunctions {
  bool asked = false;    // the process is to be sampled
  bool begun = false;    // it is
  double sampled_s = 0;  // for so long
  std::uint32_t frequency_hz = 0;
  std::uint64_t samples = 0;  // with Python frames
  std::uint64_t lost = 0;
  std::vector<TopFunction> rows{};      // in no order
  std::vector<std::string> problems{};  // sentences
};

// Since our start.
struct TopOwnCost {
  double cpu_s = 0;
  std::uint64_t reads = 0;  // system calls that read the target's memory
};

struct TopReading {
  double time_s = 0;          // CLOCK_MONOTONIC
  std::int64_t epoch_us = 0;  // the same moment
  TopTarget target;
  // The four below are of this moment; earlier than time_s where reading them anew would have cost too much.
  double details_time_s = 0;
  std::vector<OpenCompile> open;
  std::vector<FinishedCompile> finished;  // newest first
  std::vector<TopProcess> processes;      // without the target
  bool finished_dropped = false;          // torch keeps only the newest: there were more
  std::size_t processes_left_out = 0;
  TopOwnCost own;
  TopFunctions functions;
  std::vector<std::string> problems;  // a sentence each
};

}  // namespace dynprof
