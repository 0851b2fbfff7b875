#include "user/live/compile_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

constexpr std::uint32_t kLock = 16;

// The futex a thread waits for, from /proc/PID/task/TID/syscall: the call's number, then its
// arguments; nullopt: it is in no futex call, runs, or may not be looked at.
std::optional<std::uint64_t> futex_of(pid_t pid, pid_t tid) {
  std::string path = fmt::format("/proc/{}/task/{}/syscall", pid, tid);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::array<char, 256> buffer;
  ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  if (size <= 0) return std::nullopt;
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  std::string call = fmt::format("{} 0x", SYS_futex);
  if (!text.starts_with(call)) return std::nullopt;
  text.remove_prefix(call.size());
  std::uint64_t address = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), address, 16);
  return failure == std::errc() ? std::optional(address) : std::nullopt;
}

}  // namespace

CompileLock::CompileLock(TargetView& view)
    : view_(view), is_mutex_(view.python() >= python_version(3, 14)) {
  auto module =
      view.objects.find_module(view.runtime.main_interpreter, "torch._dynamo.convert_frame");
  auto lock = module ? view.objects.module_get(*module, "compile_lock") : std::nullopt;
  if (lock && view.values.type_name(*lock) == "_thread.RLock") lock_ = *lock;
}

std::optional<LockState> CompileLock::state() {
  if (lock_ == 0) return std::nullopt;
  auto words = view_.memory().read<std::array<std::uint64_t, 3>>(lock_ + kLock);
  if (!words) return std::nullopt;
  LockState state{is_mutex_ ? lock_ + kLock : (*words)[0], (*words)[1], (*words)[2]};
  if (!plausible_pointer(state.lock)) return std::nullopt;
  if (state.count == 0) state.owner = 0;
  return state;
}

std::optional<std::uint64_t> CompileLock::owner_waited_for(pid_t tid) {
  auto before = state();
  const auto futex = before ? futex_of(view_.runtime.pid, tid) : std::nullopt;
  if (!futex) return std::nullopt;
  const auto waits_for = is_mutex_ ? view_.memory().read<std::uint64_t>(*futex - 8) : futex;
  if (waits_for != before->lock) return std::nullopt;
  auto after = state();
  return after == before ? before->owner : 0;
}

}  // namespace dynprof
