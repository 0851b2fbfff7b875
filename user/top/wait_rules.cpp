#include "user/top/wait_rules.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

constexpr std::size_t kFramesLooked = 12;

struct Rule {
  std::string_view file;      // part of the path
  std::string_view function;  // beginning of the last part of the name; "": any
  TopWait wait;
  const char* text;
};

// The first that fits any of the frames counts: what is more specific stands before what it is made of.
constexpr Rule kRules[] = {
    {"/subprocess.py", "", TopWait::kChild, ""},
    {"torch/utils/_filelock.py", "", TopWait::kFileLock, ""},
    {"/filelock/", "", TopWait::kFileLock, ""},
    {"torch/_inductor/async_compile.py", "", TopWait::kCompilePool, ""},
    {"torch/_inductor/compile_worker/", "", TopWait::kCompilePool, ""},
    {"torch/distributed/", "", TopWait::kOther, "a collective operation"},
    {"torch/utils/data/", "", TopWait::kOther, "the DataLoader"},
    {"torch/cuda/", "synchronize", TopWait::kOther, "the GPU"},
    {"/concurrent/futures/", "", TopWait::kOther, "a future"},
    {"/multiprocessing/", "", TopWait::kOther, "another process (multiprocessing)"},
    {"/queue.py", "", TopWait::kOther, "a queue"},
    {"/threading.py", "", TopWait::kOther, "another thread (threading)"},
};

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1);
}

bool fits(const Rule& rule, const WaitFrame& frame) {
  if (frame.file.find(rule.file) == std::string::npos) return false;
  return rule.function.empty() || last_part(frame.function).starts_with(rule.function);
}

// "NUMBER 0xARG ...": -1 for "running" and the like.
long call_of(std::string_view text, std::uint64_t& first_argument) {
  long call = -1;
  const char* end = text.data() + text.size();
  auto [rest, failure] = std::from_chars(text.data(), end, call);
  if (failure != std::errc() || call < 0) return -1;
  std::string_view arguments(rest, static_cast<std::size_t>(end - rest));
  first_argument = 0;
  if (arguments.starts_with(" 0x"))
    (void)std::from_chars(arguments.data() + 3, end, first_argument, 16);
  return call;
}

std::string descriptor_words(const std::string& target) {
  if (target.starts_with("pipe:")) return "a pipe";
  if (target.starts_with("socket:")) return "a socket";
  if (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty")) return "a terminal";
  if (target.starts_with("anon_inode:")) return "the kernel";
  return target.empty() ? "a file descriptor" : "a file";
}

std::string read_small(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> buffer;
  const ssize_t size = fd ? ::read(fd.get(), buffer.data(), buffer.size()) : -1;
  return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

FoundWait wait_of_frames(std::span<const WaitFrame> leaf_first) {
  auto near = leaf_first.first(std::min(leaf_first.size(), kFramesLooked));
  for (const Rule& rule : kRules) {
    for (const WaitFrame& frame : near)
      if (fits(rule, frame)) return {rule.wait, rule.text};
  }
  return {};
}

int descriptor_of_system_call(std::string_view text) {
  std::uint64_t first = 0;
  switch (call_of(text, first)) {
    case SYS_read:
    case SYS_write:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_connect:
    case SYS_flock:
      return first <= 1 << 20 ? static_cast<int>(first) : -1;
    default:
      return -1;
  }
}

std::string wait_of_system_call(std::string_view text, const std::string& descriptor_target) {
  std::uint64_t first = 0;
  switch (call_of(text, first)) {
    case SYS_futex:
      return "a lock or a condition";
    case SYS_wait4:
    case SYS_waitid:
      return "a child process";
    case SYS_flock:
      return "a file lock that another process holds";
    case SYS_read:
    case SYS_recvfrom:
    case SYS_recvmsg:
      return "data from " + descriptor_words(descriptor_target);
    case SYS_write:
    case SYS_sendto:
    case SYS_sendmsg:
      return "room in " + descriptor_words(descriptor_target);
    case SYS_connect:
      return "a connection";
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait:
#ifdef SYS_poll
    case SYS_poll:
    case SYS_select:
    case SYS_epoll_wait:
#endif
      return "data from any of several descriptors";
    case SYS_clock_nanosleep:
    case SYS_nanosleep:
      return "a sleep to end";
    default:
      return {};
  }
}

FoundWait wait_of_thread(pid_t pid, pid_t tid, std::span<const WaitFrame> leaf_first) {
  FoundWait found = wait_of_frames(leaf_first);
  if (found.wait != TopWait::kNone) return found;
  const std::string call = read_small(fmt::format("/proc/{}/task/{}/syscall", pid, tid));
  std::string target;
  if (const int fd = descriptor_of_system_call(call); fd >= 0) {
    std::array<char, 256> buffer;
    const std::string link = fmt::format("/proc/{}/fd/{}", pid, fd);
    const ssize_t size = ::readlink(link.c_str(), buffer.data(), buffer.size());
    if (size > 0) target.assign(buffer.data(), static_cast<std::size_t>(size));
  }
  std::string words = wait_of_system_call(call, target);
  if (words == "a child process") return {TopWait::kChild, {}};
  if (!words.empty()) return {TopWait::kOther, std::move(words)};
  return {};
}

}  // namespace dynprof
