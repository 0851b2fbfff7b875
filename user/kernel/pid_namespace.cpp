#include "user/kernel/pid_namespace.h"

#include <sys/stat.h>

#include <cerrno>

#include "pid_level.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/target/process.h"

namespace dynprof {

Result<PidNamespace> find_pid_namespace() {
  PidNamespace ours;
  if (in_initial_pid_namespace()) return ours;
  struct stat info = {};
  if (stat("/proc/self/ns/pid", &info) != 0) return errno_error("cannot read /proc/self/ns/pid");
  constexpr const char* kPrograms = "pid-level";
  auto skeleton = open_object<pid_level_bpf>(kPrograms);
  if (!skeleton || !load_object(kPrograms, **skeleton))
    return error("the kernel refused the program that finds the pid namespace",
                 "run it on the host, or in a container started with --pid=host");
  const auto level = run_once((*skeleton)->progs.find_pid_level);
  if (!level) return errno_error("cannot determine the pid namespace");
  ours.level = *level;
  ours.inode = static_cast<std::uint32_t>(info.st_ino);
  return ours;
}

}  // namespace dynprof
