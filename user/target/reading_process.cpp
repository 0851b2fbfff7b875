#include "user/target/reading_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "user/target/process.h"
#include "user/target/read_losses.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxBytes = 32 << 10;  // of one reply; both fit a socket's buffer
constexpr int kSocket = 3;                   // in the child

std::uint64_t began(pid_t pid) {
  auto stat = read_process_stat(pid);
  return stat ? stat->start_ticks : 0;
}

}  // namespace

struct ReadingProcess::Request {
  pid_t pid = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};

struct ReadingProcess::Reply {
  std::int64_t done = 0;  // or -errno
  std::array<std::byte, kMaxBytes> bytes;
};

namespace {

// What follows runs in the child, a copy of a program with threads: no memory is taken, no lock.

// /proc/PID/mem.
ssize_t read_file(pid_t pid, std::uint64_t address, std::span<std::byte> into) {
  char path[64];
  char digits[16];
  std::size_t count = 0;
  for (unsigned rest = static_cast<unsigned>(pid); rest != 0 || count == 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  char* out = ::stpcpy(path, "/proc/");
  while (count > 0) *out++ = digits[--count];
  ::strcpy(out, "/mem");
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t got = ::pread(file, into.data(), into.size(), static_cast<off_t>(address));
  const int problem = errno;
  ::close(file);
  errno = problem;
  return got;
}

ssize_t read_memory(pid_t pid, std::uint64_t address, std::span<std::byte> into) {
  const iovec local = {into.data(), into.size()};
  const iovec remote = {reinterpret_cast<void*>(address), into.size()};
  const ssize_t got = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
  if (got >= 0 || (errno != ENOSYS && errno != EPERM)) return got;
  return read_file(pid, address, into);  // a seccomp filter forbids the call
}

// It may be there long after us: it keeps no descriptor of ours, no name, and one capability.
void become_reader(int socket) {
  if (socket != kSocket) ::dup2(socket, kSocket);
  ::syscall(SYS_close_range, kSocket + 1, ~0U, 0);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < kSocket; ++fd) ::dup2(null, fd);
  if (null > kSocket) ::close(null);
  ::setpgid(0, 0);  // Control-C is for the recorder
  ::prctl(PR_SET_NAME, "dynprof-reader");
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return;
  data[0].effective &= 1U << CAP_SYS_PTRACE;
  data[0].permitted = data[0].effective;
  data[0].inheritable = 0;
  data[1] = {};
  ::syscall(SYS_capset, &header, data);
}

}  // namespace

ReadingProcess& ReadingProcess::of_program() {
  static ReadingProcess process;
  return process;
}

ReadingProcess::~ReadingProcess() { end(); }

void ReadingProcess::prepare() {
  const std::lock_guard lock(mutex_);
  (void)start();
}

void ReadingProcess::end() {
  const std::lock_guard lock(mutex_);
  abandon();
  // One that waits for nothing is gone at once.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  for (reap(); !ending_.empty() && std::chrono::steady_clock::now() < deadline; reap()) {
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

bool ReadingProcess::start() {
  reap();
  if (child_ != 0) return true;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  UniqueFd ours(ends[0]), theirs(ends[1]);
  // In the child signals are as at its start: our handlers are for us.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  if (child == 0) {
    static Reply reply;
    Request request;
    become_reader(theirs.get());
    while (::read(kSocket, &request, sizeof request) == sizeof request) {
      const std::span into(reply.bytes.data(), std::min<std::size_t>(request.size, kMaxBytes));
      const ssize_t got = read_memory(request.pid, request.address, into);
      reply.done = got < 0 ? -errno : got;
      const std::size_t size =
          offsetof(Reply, bytes) + static_cast<std::size_t>(std::max<ssize_t>(got, 0));
      if (::send(kSocket, &reply, size, MSG_NOSIGNAL) < 0) break;
    }
    ::_exit(0);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return false;
  child_ = child;
  socket_ = std::move(ours);
  return true;
}

// Not waited for: what it waits for may not even let it end.
void ReadingProcess::abandon() {
  socket_.reset();
  if (child_ == 0) return;
  ::kill(child_, SIGKILL);
  ending_.push_back(child_);
  child_ = 0;
}

void ReadingProcess::reap() {
  std::erase_if(ending_, [](pid_t child) {
    const pid_t done = ::waitpid(child, nullptr, WNOHANG);
    return done == child || (done < 0 && errno == ECHILD);
  });
}

std::size_t ReadingProcess::ask(const Request& request, std::span<std::byte> into, int& problem) {
  static thread_local Reply reply;
  problem = EAGAIN;
  if (!start()) return 0;
  if (::send(socket_.get(), &request, sizeof request, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof request)) {
    abandon();
    return 0;
  }
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd ready{socket_.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (polled < 0 && errno == EINTR) continue;
    if (polled > 0) break;
    abandon();
    {
      const std::lock_guard lock(given_up_mutex_);
      given_up_.insert_or_assign(request.pid, began(request.pid));
      ++stuck_;
    }
    ReadLosses::of_program().add(ReadLoss::kMemoryStuck, request.pid);
    problem = ETIMEDOUT;
    return 0;
  }
  const ssize_t got = ::recv(socket_.get(), &reply, sizeof reply, MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(offsetof(Reply, bytes))) {
    abandon();
    return 0;
  }
  if (reply.done < 0) {
    problem = static_cast<int>(-reply.done);
    return 0;
  }
  problem = 0;
  const std::size_t size = std::min({into.size(), static_cast<std::size_t>(reply.done),
                                     static_cast<std::size_t>(got) - offsetof(Reply, bytes)});
  std::memcpy(into.data(), reply.bytes.data(), size);
  return size;
}

std::size_t ReadingProcess::read(pid_t pid, std::uint64_t address, std::span<std::byte> into,
                                 int& problem) {
  const std::lock_guard lock(mutex_);
  problem = ETIMEDOUT;
  if (given_up(pid) || !may_ask()) return 0;
  std::size_t done = 0;
  while (done < into.size()) {
    const std::span part = into.subspan(done, std::min(into.size() - done, kMaxBytes));
    const std::size_t got = ask({pid, address + done, part.size()}, part, problem);
    done += got;
    if (got < part.size()) break;
  }
  return done;
}

bool ReadingProcess::given_up(pid_t pid) {
  if (stuck_.load() == 0) return false;
  const std::lock_guard lock(given_up_mutex_);
  const auto at = given_up_.find(pid);
  return at != given_up_.end() && at->second == began(pid);
}

}  // namespace dynprof
