// `dump --every`: after the first dump, what compiles and what waits to, and whether it has advanced since.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "user/live/dump.h"

namespace dynprof {

class DumpAgain {
 public:
  // `seconds`: when it was read, by a clock that only goes forwards. The first text is dump_text(); later ones have a
  // line for each thread that compiles or waits for the compile lock, with for how long nothing of it has changed.
  std::string text(const ProcessDump& dump, double seconds);

 private:
  struct Seen {
    std::string state;
    double since = 0;
  };
  std::map<pid_t, Seen> seen_;
  bool first_ = true;
};

}  // namespace dynprof
