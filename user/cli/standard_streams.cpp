#include "user/cli/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace dynprof {
namespace {

// 0, or the errno of the write that failed.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (count == 0) {
      return EIO;
    } else if (errno == EAGAIN) {  // another process made the shared description non-blocking
      pollfd ready = {fd, POLLOUT, 0};
      if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return errno;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void prepare_standard_streams() {
  ::signal(SIGPIPE, SIG_IGN);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one. Opened the wrong way round, so that using it fails.
    (void)!::open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
  }
}

Result<void> print_out(std::string_view text) {
  errno = write_all(STDOUT_FILENO, text);
  if (errno == 0) return {};
  return errno_error("cannot write to stdout");
}

void print_err(std::string_view text) { (void)write_all(STDERR_FILENO, text); }

bool stderr_is_ready() {
  pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
}

}  // namespace dynprof
