// What /proc reports of a process and those below it: CPU time, memory, and what each is for. Their memory is
// not read.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "user/top/reading.h"

namespace dynprof {

// Of /proc/PID/stat, see proc(5).
struct ProcessTimes {
  std::string comm;
  char state = '?';
  pid_t parent = 0;
  double cpu_s = 0;
  std::size_t threads = 0;
  std::uint64_t start_ticks = 0;
  std::uint64_t rss_bytes = 0;
};
std::optional<ProcessTimes> parse_process_times(std::string_view stat);

// "compiler", "compile worker", ...: by the arguments, with a 0 byte between two, and the kernel's name.
std::string process_purpose(std::string_view arguments, std::string_view comm);

class TopProcesses {
 public:
  static constexpr std::size_t kMaxProcesses = 512;
  static constexpr std::size_t kMaxThreads = 8192;  // whose children are asked for, in all

  explicit TopProcesses(pid_t pid) : pid_(pid) {}

  // False: it has ended, or its pid belongs to another process by now.
  bool read_target(TopTarget& target);
  // Those below it, parents first. `left_out`: how many more were found.
  std::vector<TopProcess> read_children(std::size_t& left_out);

 private:
  struct Command {
    std::uint64_t start_ticks = 0;
    std::string comm;  // another one: it is another program since
    std::string title;
    std::string purpose;
  };
  const Command& command_of(pid_t pid, const ProcessTimes& times);

  pid_t pid_;
  std::uint64_t start_ticks_ = 0;  // 0: not known yet
  std::map<pid_t, Command> commands_;
};

}  // namespace dynprof
