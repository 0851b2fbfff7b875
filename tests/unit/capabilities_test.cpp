// What is left of a process' rights after it gave some up. Each case runs in a child process: nothing
// given up comes back.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "user/preflight/capabilities.h"
#include "user/privileges/acting_as.h"
#include "user/privileges/leave_root.h"

namespace dynprof {
namespace {

constexpr std::uint64_t bit(int capability) { return 1ULL << capability; }

std::string own_status() {
  std::ostringstream text;
  text << std::ifstream("/proc/thread-self/status").rdbuf();
  return text.str();
}

std::uint64_t held() { return effective_capabilities(own_status()); }

// The number of the first expectation that does not hold, 0 for none.
int in_child(const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(work());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

struct Capabilities : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0 || !can_change_user()) GTEST_SKIP() << "needs root";
  }
};

TEST_F(Capabilities, AReaderOfMemoryHasNothingElse) {
  EXPECT_EQ(in_child([] {
              const std::uint64_t reading =
                  bit(CAP_SYS_PTRACE) | bit(CAP_DAC_READ_SEARCH) | bit(CAP_CHECKPOINT_RESTORE);
              const std::uint64_t before = held();
              if (!keep_only_reading()) return 1;
              return held() == (before & reading) ? 0 : 2;
            }),
            0);
}

// As in a container of Docker 20.10, which cannot give the newer capabilities.
void lose_bpf_and_perfmon() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  ::syscall(SYS_capget, &header, sets);
  const auto lost = static_cast<std::uint32_t>((bit(CAP_BPF) | bit(CAP_PERFMON)) >> 32);
  sets[1].effective &= ~lost;
  sets[1].permitted &= ~lost;
  ::syscall(SYS_capset, &header, sets);
}

TEST_F(Capabilities, AdminIsKeptInPlaceOfBpfAndPerfmon) {
  EXPECT_EQ(in_child([] {
              lose_bpf_and_perfmon();
              if (held() & bit(CAP_BPF)) return 1;
              if (!drop_capabilities(false) || !(held() & bit(CAP_SYS_ADMIN))) return 2;
              if (!keep_only_reading(true) || !(held() & bit(CAP_SYS_ADMIN))) return 3;
              return keep_only_reading() && !(held() & bit(CAP_SYS_ADMIN)) ? 0 : 4;
            }),
            0);
}

TEST_F(Capabilities, ARunningRecordingCannotAdministerNorOverrideFileModes) {
  EXPECT_EQ(in_child([] {
              if (!drop_capabilities(false)) return 1;
              const std::uint64_t gone = bit(CAP_SYS_ADMIN) | bit(CAP_DAC_OVERRIDE) |
                                         bit(CAP_SYS_MODULE) | bit(CAP_SYS_RAWIO) |
                                         bit(CAP_NET_ADMIN) | bit(CAP_MKNOD) | bit(CAP_SETPCAP);
              return held() & gone ? 2 : 0;
            }),
            0);
}

TEST_F(Capabilities, BecomingAUserLeavesNothing) {
  EXPECT_EQ(in_child([] {
              if (!become_user({34567, 34568, {34568, 34569}})) return 1;
              if (held() != 0) return 2;
              if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 3;
              uid_t real = 0, effective = 0, saved = 0;
              ::getresuid(&real, &effective, &saved);
              if (real != 34567 || effective != 34567 || saved != 34567) return 4;
              gid_t groups[8];
              if (::getgroups(8, groups) != 2 || groups[0] != 34568 || groups[1] != 34569) return 5;
              return ::setuid(0) == 0 ? 6 : 0;
            }),
            0);
}

TEST_F(Capabilities, ReadingMayBeKeptForAWhile) {
  EXPECT_EQ(in_child([] {
              if (!become_user(unprivileged_user(), Keep::kReading)) return 1;
              if (held() != bit(CAP_DAC_READ_SEARCH)) return 2;
              if (!give_up_reading()) return 3;
              return held() == 0 ? 0 : 4;
            }),
            0);
}

TEST_F(Capabilities, ActingAsAUserEndsWithItsScope) {
  EXPECT_EQ(in_child([] {
              const std::uint64_t before = held();
              {
                auto acting = ActingAs::user(UserIdentity{34567, 34568, {34569}});
                if (!acting) return 1;
                const std::string status = own_status();
                if (status.find("\t34567\n") == std::string::npos) return 3;  // the fsuid
                if (status.find("\nGroups:\t34569 \n") == std::string::npos) return 4;
                if (held() & (bit(CAP_DAC_OVERRIDE) | bit(CAP_DAC_READ_SEARCH))) return 5;
              }
              if (held() != before) return 6;
              return own_status().find("34567") == std::string::npos ? 0 : 7;
            }),
            0);
}

}  // namespace
}  // namespace dynprof
