#include "user/cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "symbolizer/base/text.h"
#include "user/cli/standard_streams.h"

namespace dynprof {
namespace {

const std::string kClearLine = "\r\x1b[K";

std::size_t terminal_columns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

void print_error(const Error& failure) {
  std::string text = fmt::format("error: {}\n", escape_terminal(failure.what));
  if (!failure.hint.empty()) text += fmt::format("hint: {}\n", escape_terminal(failure.hint));
  print_err(text);
}

int fail(const Error& failure) {
  print_error(failure);
  return failure.exit_code;
}

Terminal::Terminal(bool quiet) : quiet_(quiet), is_terminal_(isatty(STDERR_FILENO) == 1) {}

void Terminal::line(const std::string& text) {
  clear_progress();
  if (!quiet_) print_err(escape_terminal(text) + "\n");
}

void Terminal::progress(const std::string& text) {
  // A terminal that is stopped must not stop the recording.
  if (quiet_ || !is_terminal_ || !stderr_is_ready()) return;
  print_err(kClearLine + truncate_columns(escape_terminal(text), terminal_columns() - 1));
  progress_shown_ = true;
}

void Terminal::clear_progress() {
  if (!progress_shown_) return;
  print_err(kClearLine);
  progress_shown_ = false;
}

}  // namespace dynprof
