// Who used the CPUs of the machine while a recording ran: /proc/stat and the processes' own accounts, read once
// when it begins and once when it ends. What lives in between alone is in the machine's sum, without a name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace dynprof {

class MachineCpu {
 public:
  // Processes that are looked at; those beyond have no name in the result.
  static constexpr std::size_t kMaxProcesses = 4096;
  static constexpr std::size_t kMaxListed = 20;

  void begin() { begin_ = read(); }
  // JSON for a fact of kind "machine", "" where /proc/stat cannot be read. `is_recorded`: a process whose CPU time
  // the recording itself has.
  std::string end(const std::function<bool(pid_t)>& is_recorded) const;

 private:
  struct Process {
    std::string name;
    pid_t parent = 0;
    std::uint64_t start_ticks = 0, cpu_ns = 0;
  };
  struct Reading {
    bool known = false;
    std::uint64_t time_ns = 0;
    std::uint64_t busy_ns = 0, idle_ns = 0, steal_ns = 0;  // of all CPUs
    std::uint64_t own_ns = 0;
    std::map<pid_t, Process> processes;
  };
  static Reading read();

  Reading begin_;
};

}  // namespace dynprof
