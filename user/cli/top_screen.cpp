#include "user/cli/top_screen.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;

// Alternate screen, no cursor, no wrapping at the right edge; and all of it undone.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J\x1b[H";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::size_t kMostColumns = 1000, kMostRows = 1000;
constexpr auto kWriteTime = std::chrono::seconds(1);

constexpr std::array kQuits = {SIGINT, SIGTERM, SIGHUP};
constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

volatile sig_atomic_t quit_asked = 0;
volatile sig_atomic_t size_changed = 0;
volatile sig_atomic_t stop_asked = 0;

// For the handler of a crash.
volatile sig_atomic_t entered = 0;
termios terminal_before = {};

void restore_terminal() {
  if (!entered) return;
  entered = 0;
  (void)!::write(STDOUT_FILENO, kLeave.data(), kLeave.size());
  (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

// The second one does not wait for a read that may not return.
void on_quit(int number) {
  if (quit_asked) {
    restore_terminal();
    _exit(128 + number);
  }
  quit_asked = 1;
}
void on_resize(int) { size_changed = 1; }
void on_stop(int) { stop_asked = 1; }

void on_crash(int number) {
  restore_terminal();
  signal(number, SIG_DFL);
  raise(number);
}

void handle(int number, void (*handler)(int), int flags = 0) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

// While it lives the signals above arrive only inside of ppoll(): none is missed between a look at the flags
// and the wait.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (int number : kQuits) sigaddset(&held, number);
    for (int number : {SIGWINCH, SIGTSTP}) sigaddset(&held, number);
    sigprocmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

timespec until_deadline(Clock::time_point until) {
  const auto left = std::max(Clock::duration::zero(), until - Clock::now());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

const char* style_code(TopLine::Style style) {
  switch (style) {
    case TopLine::Style::kPlain:
      return "";
    case TopLine::Style::kTitle:
      return "\x1b[7m";
    case TopLine::Style::kHeading:
      return "\x1b[1m";
    case TopLine::Style::kWarning:
      return "\x1b[1;31m";
  }
  return "";
}

std::string painted(const TopLine& line) {
  const std::string code = style_code(line.style);
  return code.empty() ? line.text : code + line.text + "\x1b[0m";
}

}  // namespace

void catch_top_signals() {
  for (int number : kQuits) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    // Under nohup the terminal may go, and this is to go on.
    if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;
    handle(number, on_quit);
  }
}

bool wait_for_quit(Clock::time_point until) {
  const HeldSignals held;
  while (!quit_asked && Clock::now() < until) {
    const timespec left = until_deadline(until);
    (void)ppoll(nullptr, 0, &left, &held.before());
  }
  return quit_asked != 0;
}

bool TopScreen::usable() {
  const char* name = getenv("TERM");
  const std::string_view term = name ? name : "";
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && !term.empty() &&
         term != "dumb" && term != "unknown";
}

TopScreen::TopScreen() {
  std::array<char, 256> path{};
  if (ttyname_r(STDOUT_FILENO, path.data(), path.size()) == 0)
    own_ = UniqueFd(::open(path.data(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  fd_ = own_ ? own_.get() : STDOUT_FILENO;
}

TopScreen::~TopScreen() { leave(); }

void TopScreen::enter() {
  if (shown_) return;
  if (tcgetattr(STDIN_FILENO, &terminal_before) == 0) {
    termios raw = terminal_before;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    entered = 1;
  }
  for (int number : kCrashes) handle(number, on_crash, SA_RESETHAND | SA_NODEFER);
  handle(SIGWINCH, on_resize);
  handle(SIGTSTP, on_stop);
  shown_ = true;
  drawn_size_ = {0, 0};
  put(kEnter);
}

void TopScreen::leave() {
  if (!shown_) return;
  shown_ = false;
  put(kLeave, true);
  if (entered) (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
  entered = 0;
}

// Stops as Control-Z does by default; continues when the shell continues it.
void TopScreen::suspend() {
  stop_asked = 0;
  leave();
  handle(SIGTSTP, SIG_DFL);
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);  // it is blocked: it arrives with the next line
  sigprocmask(SIG_UNBLOCK, &stop, &before);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  enter();
}

TerminalSize TopScreen::size() const {
  winsize size = {};
  TerminalSize out;
  if (ioctl(fd_, TIOCGWINSZ, &size) != 0) return out;
  if (size.ws_col != 0) out.columns = std::min<std::size_t>(size.ws_col, kMostColumns);
  if (size.ws_row != 0) out.rows = std::min<std::size_t>(size.ws_row, kMostRows);
  return out;
}

bool TopScreen::put(std::string_view text, bool also_when_quitting) {
  const auto until = Clock::now() + kWriteTime;
  while (!text.empty()) {
    const ssize_t count = ::write(fd_, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EAGAIN) {
      pollfd ready = {fd_, POLLOUT, 0};
      const timespec left = until_deadline(until);
      if (ppoll(&ready, 1, &left, nullptr) == 0) return false;
      if (quit_asked && !also_when_quitting) return false;
    } else if (count == 0 || errno != EINTR) {
      quit_asked = 1;  // the terminal is gone
      return false;
    }
  }
  return true;
}

void TopScreen::draw(const std::vector<TopLine>& lines, TerminalSize size) {
  const bool anew = size.columns != drawn_size_.columns || size.rows != drawn_size_.rows;
  std::string out = anew ? "\x1b[2J" : "";
  if (anew) drawn_.clear();
  std::vector<std::string> now;
  for (std::size_t i = 0; i < std::min(lines.size(), size.rows); ++i)
    now.push_back(painted(lines[i]));
  for (std::size_t i = 0; i < std::max(now.size(), drawn_.size()); ++i) {
    if (i < now.size() && i < drawn_.size() && now[i] == drawn_[i]) continue;
    out += fmt::format("\x1b[{};1H\x1b[K", i + 1);
    if (i < now.size()) out += now[i];
  }
  const bool written = put(out);
  drawn_ = std::move(now);
  drawn_size_ = written ? size : TerminalSize{0, 0};
}

TopEvents TopScreen::wait(Clock::time_point until) {
  TopEvents events;
  const HeldSignals held;
  while (true) {
    if (stop_asked) {
      suspend();
      events.resized = true;
    }
    if (size_changed) {
      size_changed = 0;
      events.resized = true;
    }
    events.quit = quit_asked != 0;
    if (events.quit || events.resized || Clock::now() >= until) return events;
    pollfd ready = {STDIN_FILENO, POLLIN, 0};
    const timespec left = until_deadline(until);
    if (ppoll(&ready, 1, &left, &held.before()) <= 0) continue;
    std::array<char, 256> buffer;
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count > 0) {
      pending_.append(buffer.data(), static_cast<std::size_t>(count));
      events.keys = take_keys(pending_);
      if (!events.keys.empty()) return events;
    } else if ((ready.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
      events.quit = true;
      return events;
    }
  }
}

}  // namespace dynprof
