#include "user/inject/target_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "user/target/awaiting_target.h"

namespace dynprof {

Result<void> write_data(pid_t pid, std::uint64_t address, std::span<const std::byte> bytes) {
  const AwaitingTarget awaiting(pid);
  // The call writes to neither side of `local`.
  const iovec local = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  const iovec remote = {reinterpret_cast<void*>(address), bytes.size()};
  const ssize_t done = ::process_vm_writev(pid, &local, 1, &remote, 1, 0);
  if (done == static_cast<ssize_t>(bytes.size())) return {};
  if (done >= 0) errno = EFAULT;
  return errno_error(fmt::format("cannot write to the memory of process {}", pid));
}

Result<CodeWriter> CodeWriter::open(pid_t pid) {
  UniqueFd memory(::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDWR | O_CLOEXEC));
  if (!memory) return errno_error(fmt::format("cannot open /proc/{}/mem for writing", pid));
  return CodeWriter(pid, std::move(memory));
}

Result<void> CodeWriter::write(std::uint64_t address, std::span<const std::byte> bytes) const {
  const AwaitingTarget awaiting(pid_);
  const ssize_t done =
      ::pwrite(memory_.get(), bytes.data(), bytes.size(), static_cast<off_t>(address));
  if (done == static_cast<ssize_t>(bytes.size())) return {};
  if (done >= 0) errno = EIO;
  return errno_error(fmt::format("cannot write to the code of process {}", pid_),
                     "the kernel may forbid it (proc_mem.force_override)");
}

}  // namespace dynprof
