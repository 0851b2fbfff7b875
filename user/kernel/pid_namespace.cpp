#include "user/kernel/pid_namespace.h"

#include <bpf/bpf.h>
#include <sys/stat.h>

#include <cerrno>

#include "pid_level.skel.h"
#include "user/kernel/skeleton.h"
#include "user/target/process.h"

namespace dynprof {

Result<PidNamespace> find_pid_namespace() {
  PidNamespace ours;
  if (in_initial_pid_namespace()) return ours;
  struct stat info = {};
  if (stat("/proc/self/ns/pid", &info) != 0) return errno_error("cannot read /proc/self/ns/pid");
  Skeleton<pid_level_bpf> skeleton(pid_level_bpf::open_and_load());
  if (!skeleton)
    return error("the kernel refused the program that finds the pid namespace",
                 "run it on the host, or in a container started with --pid=host");
  LIBBPF_OPTS(bpf_test_run_opts, options);
  const int fd = bpf_program__fd(skeleton->progs.find_pid_level);
  if (bpf_prog_test_run_opts(fd, &options) != 0)
    return errno_error("cannot determine the pid namespace");
  ours.level = options.retval;
  ours.inode = static_cast<std::uint32_t>(info.st_ino);
  return ours;
}

}  // namespace dynprof
