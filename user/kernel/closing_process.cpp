#include "user/kernel/closing_process.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace dynprof {
namespace {

constexpr const char* kName = "fd-closer";
constexpr int kPatienceMs = 30'000;
// At the same time, after the program was killed.
constexpr int kClosers = 32;
constexpr rlim_t kMaxDescriptors = 1 << 20;

// Numbers in the shared table. None: the sender waits for an answer.
struct Request {
  std::int32_t count = 0;
  std::array<std::int32_t, 64> descriptors = {};
};

// What follows runs in the other process: no memory is taken, no lock.

// Shares the table of descriptors, nothing else.
long copy_of_this_process() {
  return ::syscall(SYS_clone, CLONE_FILES | SIGCHLD, nullptr, nullptr, nullptr, 0);
}

// Each by a process of its own: most of the time is spent waiting.
void close_together(std::span<const std::int32_t> descriptors) {
  for (const int descriptor : descriptors) {
    const long child = copy_of_this_process();
    if (child > 0) continue;
    ::close(descriptor);
    if (child == 0) ::_exit(0);
  }
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

// Of the program, which is gone. The end of this process would close them one after the other, and take a tenth of a second for
// each uprobe.
void close_all_together() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kMaxDescriptors));
  for (int first = 0; first < kClosers; first++) {
    const long child = copy_of_this_process();
    if (child < 0) break;  // the end of this process closes the rest
    if (child > 0) continue;
    for (int descriptor = first; descriptor < end; descriptor += kClosers) ::close(descriptor);
    ::_exit(0);
  }
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

// Until the program has ended.
void serve(int program, int requests) {
  std::array<pollfd, 2> events = {{{program, POLLIN, 0}, {requests, POLLIN, 0}}};
  for (;;) {
    if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR) break;
    // Not on an error: if the program were still there, it would lose its descriptors.
    if (events[0].revents & POLLIN) close_all_together();
    if (events[0].revents != 0) break;
    Request request;
    const ssize_t got = ::recv(requests, &request, sizeof request, MSG_DONTWAIT);
    if (got != sizeof request) continue;
    close_together(std::span(request.descriptors).first(static_cast<std::size_t>(request.count)));
    if (request.count == 0) (void)::send(requests, "", 1, MSG_NOSIGNAL);
  }
}

}  // namespace

ClosingProcess::ClosingProcess(UniqueFd ours, UniqueFd theirs,
                               std::unique_ptr<OutlivingProcess> process)
    : ours_(std::move(ours)), theirs_(std::move(theirs)), process_(std::move(process)) {}

Result<std::unique_ptr<ClosingProcess>> ClosingProcess::start() {
  const auto fail = [] {
    return errno_error("cannot start the process that removes probes if dynprof-bpf is killed",
                       "--passive sets no probes");
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail();
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const int requests = theirs.get();
  auto process =
      OutlivingProcess::start(kName, [requests](int program) { serve(program, requests); });
  if (!process) return fail();
  return std::unique_ptr<ClosingProcess>(
      new ClosingProcess(std::move(ours), std::move(theirs), std::move(process)));
}

void ClosingProcess::close(std::vector<UniqueFd> descriptors) {
  for (std::size_t done = 0; done < descriptors.size();) {
    Request request;
    const std::size_t count = std::min(descriptors.size() - done, request.descriptors.size());
    for (std::size_t i = 0; i < count; i++) request.descriptors[i] = descriptors[done + i].get();
    request.count = static_cast<std::int32_t>(count);
    // Where that fails they are closed here.
    const bool sent = ::send(ours_.get(), &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                      sizeof request;
    for (std::size_t i = 0; i < count && sent; i++) descriptors[done + i].release();
    done += count;
  }
}

bool ClosingProcess::wait() {
  const Request none;
  answers_ = answers_ &&
             ::send(ours_.get(), &none, sizeof none, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof none;
  if (!answers_) return false;
  std::array<pollfd, 2> events = {{{ours_.get(), POLLIN, 0}, {process_->descriptor(), POLLIN, 0}}};
  while (::poll(events.data(), events.size(), kPatienceMs) < 0 && errno == EINTR) {
  }
  char answer = 0;
  answers_ = ::recv(ours_.get(), &answer, 1, MSG_DONTWAIT) == 1;
  return answers_;
}

ClosingProcess::~ClosingProcess() {
  // Killed while it closes a probe, it would leave that behind.
  if (wait()) process_->end();
}

}  // namespace dynprof
