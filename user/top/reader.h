// Reads for `top` what a process compiles, has compiled and waits for: from its memory and from /proc, without
// stopping it and without BPF, and for at most 1 % of a core once the first look is done.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>

#include "symbolizer/base/result.h"
#include "user/target/python_runtime.h"
#include "user/top/finished_rows.h"
#include "user/top/processes.h"
#include "user/top/read_budget.h"
#include "user/top/reading.h"

namespace dynprof {

class TopReader {
 public:
  // An error where `dump` has one: there is no such process, it is no Python, or it may not be read.
  static Result<std::unique_ptr<TopReader>> open(pid_t pid);
  ~TopReader();

  // nullopt: the process has ended.
  std::optional<TopReading> read();

 private:
  struct View;
  explicit TopReader(PythonRuntime runtime);
  void read_details(double now_s);
  // `anew`: the view was made for this reading.
  void read_compiles(View& view, bool anew);
  void find_python_again(double now_s);

  PythonRuntime runtime_;
  TopProcesses processes_;
  FinishedRows finished_;
  ReadBudget budget_;
  std::unique_ptr<View> view_;
  TopReading details_;  // what read_details() found last
  std::uint64_t reads_ = 0;
  std::string command_;
  double first_cpu_s_ = 0;
  double looked_for_python_s_ = 0;
};

}  // namespace dynprof
