#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/target/descriptor_limit.h"
#include "user/target/python_runtime.h"

namespace dynprof {
namespace {

// In a child, since a lowered hard limit cannot be raised again. Bits of its answer say what held.
int in_child(int (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DescriptorLimit, IsRaisedToTheHardOne) {
  EXPECT_EQ(in_child([] {
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              limit.rlim_cur = 32;
              ::setrlimit(RLIMIT_NOFILE, &limit);
              raise_descriptor_limit();
              rlimit now{};
              ::getrlimit(RLIMIT_NOFILE, &now);
              return now.rlim_cur == limit.rlim_max ? 0 : 1;
            }),
            0);
}

// What a process seems to be without descriptors is not what it is.
TEST(DescriptorLimit, AProcessThatCouldNotBeOpenedIsToBeTriedAgain) {
  EXPECT_EQ(in_child([] {
              PythonDiscovery before, without;
              (void)discover_python(::getpid(), &before);
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              limit.rlim_cur = 64;
              ::setrlimit(RLIMIT_NOFILE, &limit);
              while (::dup(2) >= 0) {
              }
              const bool out = out_of_descriptors();
              (void)discover_python(::getpid(), &without);
              ::close(63);
              return (before.no_descriptors ? 1 : 0) + (out ? 0 : 2) +
                     (without.no_descriptors ? 0 : 4) + (out_of_descriptors() ? 8 : 0);
            }),
            0);
}

}  // namespace
}  // namespace dynprof
