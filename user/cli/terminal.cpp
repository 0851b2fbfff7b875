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

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string format_count(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string format_seconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace dynprof
