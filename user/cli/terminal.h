// What goes to stderr: errors with their hint, notes, and one rewritten progress line on a terminal. The
// texts may contain names that the target chose: control characters are made visible here, in every text.
#pragma once

#include <string>

#include "symbolizer/base/result.h"

namespace dynprof {

// "error: ..." and "hint: ...", each on its line.
void print_error(const Error& failure);
// Prints it, and returns the exit status of the program.
int fail(const Error& failure);

class Terminal {
 public:
  explicit Terminal(bool quiet);
  ~Terminal() { clear_progress(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // A line that stays; nothing when quiet.
  void line(const std::string& text);
  // Replaces the progress line; nothing unless stderr is a terminal.
  void progress(const std::string& text);
  void clear_progress();

 private:
  bool quiet_;
  bool is_terminal_;
  bool progress_shown_ = false;
};

}  // namespace dynprof
