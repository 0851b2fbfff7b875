// What `top` shows: the newest reading, and what only several readings in a row can tell: shares of a CPU, and
// which compiles do not advance. No clock, no system call.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "user/top/reading.h"

namespace dynprof {

// A compile whose id, attempt, phases, user line and node stay the same for so long is reported.
inline constexpr double kStallSeconds = 30;

struct OpenRow {
  OpenCompile compile;
  double still_s = 0;  // it has stood at the same place for at least so long
  std::string waits;   // in words; "": it runs
};

struct ProcessRow {
  TopProcess process;
  std::optional<double> cpu_percent;  // of one CPU, since the reading before; nullopt: it is new
  std::string compile;                // the id of the compile it works for; "": not known
};

struct TopState {
  TopReading reading;  // `open` and `processes` are moved into the rows below
  std::vector<OpenRow> open;
  std::vector<ProcessRow> processes;
  std::optional<double> cpu_percent, own_cpu_percent, reads_per_s;
  double children_cpu_percent = 0;
  std::uint64_t children_rss_bytes = 0;
  std::vector<std::string> stalls;  // a sentence for each compile that does not advance
};

class TopModel {
 public:
  void add(TopReading reading);
  const TopState& state() const { return state_; }

 private:
  struct Seen {
    OpenCompile at;
    double since_s = 0;
  };
  struct Spent {
    std::uint64_t start_ticks = 0;
    double cpu_s = 0;
  };
  void add_open(const std::vector<OpenCompile>& open, const std::vector<TopProcess>& processes);
  void add_processes(std::vector<TopProcess> processes, double since_s);

  TopState state_;
  bool first_ = true;
  std::map<std::pair<pid_t, std::string>, Seen> seen_;  // by thread and id
  std::map<pid_t, Spent> spent_;
};

// "step train.py:40", "train.py:40", "": not known.
std::string place_words(const TopPlace& place);

}  // namespace dynprof
