// A terminal taken over for `top`, and given back as it was: at the end, before stopping with Control-Z, and when
// we crash. Plain ANSI sequences, no terminal database. There is one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/cli/top_keys.h"
#include "user/top/view.h"

namespace dynprof {

struct TerminalSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// What cuts a wait short.
struct TopEvents {
  std::vector<TopKey> keys;
  bool resized = false;
  bool quit = false;  // SIGINT, SIGTERM, SIGHUP, or the terminal is gone
};

class TopScreen {
 public:
  // Whether stdin and stdout are a terminal that can move its cursor.
  static bool usable();
  // Opens the terminal anew, so that a slow one cannot block us; call it while it may be opened.
  TopScreen();
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  void enter();
  // Idempotent.
  void leave();
  TerminalSize size() const;
  // Only lines that changed are written.
  void draw(const std::vector<TopLine>& lines, TerminalSize size);
  // Until a key, a signal, a new size, or the deadline.
  TopEvents wait(std::chrono::steady_clock::time_point until);

 private:
  // False: the terminal did not take all of it within a second, or is gone.
  bool put(std::string_view text, bool also_when_quitting = false);
  void suspend();

  UniqueFd own_;  // empty: stdout itself is used
  int fd_ = 1;
  bool shown_ = false;
  std::string pending_;  // input that is not a whole key yet
  std::vector<std::string> drawn_;
  TerminalSize drawn_size_{0, 0};
};

// Until a signal to quit, or the deadline. True: quit.
bool wait_for_quit(std::chrono::steady_clock::time_point until);

// From now on the first SIGINT, SIGTERM or SIGHUP only ends the waits above; the second ends the program, with the
// terminal restored.
void catch_top_signals();

}  // namespace dynprof
