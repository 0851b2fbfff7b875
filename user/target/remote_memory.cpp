#include "user/target/remote_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "user/target/awaiting_target.h"
#include "user/target/in_place_reader.h"
#include "user/target/present_pages.h"
#include "user/target/process.h"
#include "user/target/reading_process.h"

namespace dynprof {

bool RemoteMemory::read(std::uint64_t address, std::span<std::byte> into) {
  RemoteRange range{address, into};
  read_many(std::span(&range, 1));
  return range.complete();
}

std::optional<std::uint64_t> RemoteMemory::read_pointer(std::uint64_t address) {
  auto value = read<std::uint64_t>(address);
  if (!value || !plausible_pointer(*value)) return std::nullopt;
  return value;
}

std::optional<std::string> RemoteMemory::read_c_string(std::uint64_t address, std::size_t limit) {
  std::string text;
  std::array<std::byte, 256> buffer;
  while (text.size() < limit) {
    RemoteRange range{address + text.size(),
                      std::span(buffer).first(std::min(buffer.size(), limit - text.size()))};
    read_many(std::span(&range, 1));
    if (range.done == 0) return std::nullopt;
    const char* bytes = reinterpret_cast<const char*>(buffer.data());
    if (const void* end = std::memchr(bytes, 0, range.done)) {
      text.append(bytes, static_cast<const char*>(end));
      return text;
    }
    text.append(bytes, range.done);
  }
  return std::nullopt;
}

ProcessMemory::ProcessMemory(pid_t pid, Way way) : pid_(pid), way_(way) {}

void ProcessMemory::read_many(std::span<RemoteRange> ranges) {
  for (RemoteRange& range : ranges) range.done = 0;
  if (pid_ != ::getpid()) {
    if (ReadingProcess::of_program().given_up(pid_)) {
      last_error_ = ETIMEDOUT;
      return;
    }
    const auto in_place = way_ == Way::kCall ? InPlaceReader::installed() : nullptr;
    if (in_place) in_place->read(pid_, ranges);
  }
  // What is left, neighbours together.
  for (std::size_t i = 0, end = 0; i < ranges.size(); i = end) {
    end = i + 1;
    if (ranges[i].complete()) continue;
    while (end < ranges.size() && !ranges[end].complete()) ++end;
    read_slowly(ranges.subspan(i, end - i));
  }
}

// A page that is not present may never arrive: of a file that the target itself serves, or by
// userfaultfd. Those are read by a process of ours that can be given up; it takes several times as long.
void ProcessMemory::read_slowly(std::span<RemoteRange> ranges) {
  const auto read_here = [this](std::span<RemoteRange> part) {
    const AwaitingTarget awaiting(pid_);
    if (way_ == Way::kFile) {
      read_by_file(part);
    } else {
      read_by_call(part);
    }
  };
  if (pid_ == ::getpid()) return read_here(ranges);
  static thread_local PresentPages pages;
  const std::vector<bool>& present = pages.of(pid_, ranges);
  // Neighbours of one kind are read together.
  for (std::size_t i = 0, end = 0; i < ranges.size(); i = end) {
    while (end < ranges.size() && present[end] == present[i]) ++end;
    if (present[i]) {
      read_here(ranges.subspan(i, end - i));
      continue;
    }
    ReadingProcess& reader = ReadingProcess::of_program();
    for (RemoteRange& range : ranges.subspan(i, end - i)) {
      int problem = 0;
      range.done = reader.read(pid_, range.address, range.into, problem);
      if (!range.complete()) last_error_ = problem != 0 ? problem : EFAULT;
      if (problem == ETIMEDOUT || problem == ESRCH) return;
    }
  }
}

void ProcessMemory::read_by_call(std::span<RemoteRange> ranges) {
  constexpr std::size_t kBatch = 128;  // the kernel's limit is 1024
  std::size_t next = 0;
  while (next < ranges.size()) {
    std::array<iovec, kBatch> local;
    std::array<iovec, kBatch> remote;
    std::size_t count = std::min(kBatch, ranges.size() - next);
    for (std::size_t i = 0; i < count; ++i) {
      const RemoteRange& range = ranges[next + i];
      local[i] = {range.into.data(), range.into.size()};
      remote[i] = {reinterpret_cast<void*>(range.address), range.into.size()};
    }
    ssize_t got = ::process_vm_readv(pid_, local.data(), count, remote.data(), count, 0);
    if (got < 0) {
      last_error_ = errno;
      if (errno == ENOSYS || errno == EPERM) {  // seccomp filters forbid the call, not the file
        way_ = Way::kFile;
        read_by_file(ranges.subspan(next));
        return;
      }
      if (errno == ESRCH) return;
      next += 1;  // EFAULT: the first of them is not there
      continue;
    }
    // The kernel stops at the first byte it cannot read; hand out what came and go on after it.
    std::size_t left = static_cast<std::size_t>(got);
    std::size_t i = 0;
    for (; i < count; ++i) {
      RemoteRange& range = ranges[next + i];
      range.done = std::min(left, range.into.size());
      left -= range.done;
      if (!range.complete()) {
        last_error_ = EFAULT;
        ++i;
        break;
      }
    }
    next += i;
  }
}

void ProcessMemory::read_by_file(std::span<RemoteRange> ranges) {
  if (!file_) {
    file_.reset(::open(fmt::format("/proc/{}/mem", pid_).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_) {
      last_error_ = errno == ENOENT ? ESRCH : errno;
      return;
    }
  }
  for (RemoteRange& range : ranges) {
    while (!range.complete()) {
      ssize_t got =
          ::pread(file_.get(), range.into.data() + range.done, range.into.size() - range.done,
                  static_cast<off_t>(range.address + range.done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        last_error_ = got < 0 ? errno : ESRCH;
        break;
      }
      range.done += static_cast<std::size_t>(got);
    }
  }
}

Result<void> ProcessMemory::check_access() {
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(pid_));
  return check_access(mappings);
}

Result<void> ProcessMemory::check_access(std::span<const Mapping> mappings) {
  for (const Mapping& mapping : mappings) {
    if (!mapping.readable || mapping.path == "[vvar]" || mapping.path == "[vsyscall]") continue;
    last_error_ = 0;
    if (read<std::byte>(mapping.start)) return {};
    if (last_error_ == EPERM || last_error_ == EACCES || last_error_ == ESRCH) break;
  }
  if (last_error_ == ESRCH) return ended_error(pid_);
  errno = last_error_ == 0 ? EFAULT : last_error_;
  return errno_error(fmt::format("cannot read the memory of process {}", pid_),
                     "run as root (sudo), or give it CAP_SYS_PTRACE");
}

}  // namespace dynprof
