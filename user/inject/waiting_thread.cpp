#include "user/inject/waiting_thread.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

namespace dynprof {

std::optional<WaitingThread> where_it_waits(pid_t pid, pid_t tid) {
  const std::string path = fmt::format("/proc/{}/task/{}/syscall", pid, tid);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  WaitingThread thread;
  // "running", or the number, the six arguments of a system call, the stack pointer, and the pc.
  if (!file || std::fscanf(file.get(), "%ld", &thread.call) != 1) return std::nullopt;
  int words = 0;
  for (unsigned long long word = 0; std::fscanf(file.get(), "%llx", &word) == 1; ++words)
    thread.pc = word;
  if (words != (thread.call < 0 ? 2 : 8)) return std::nullopt;
  return thread;
}

}  // namespace dynprof
