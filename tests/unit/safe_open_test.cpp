// Names that the target chose: what they lead to is opened only if it is a file, and handed on only if the
// target could have read it.
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "user/generated/target_file.h"
#include "user/symbols/perf_map.h"
#include "user/target/process.h"
#include "user/target/safe_open.h"
#include "user/target/target_rights.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kStranger = 65'534;

// Counts how often files of a folder are opened; O_PATH does not count.
class OpenCounter {
 public:
  explicit OpenCounter(const fs::path& folder) : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(fd_.get(), folder.c_str(), IN_OPEN), 0);
  }
  int count() {
    alignas(inotify_event) std::array<char, 4096> buffer;
    int opened = 0;
    for (ssize_t got; (got = ::read(fd_.get(), buffer.data(), buffer.size())) > 0;) {
      for (ssize_t at = 0; at < got; opened++) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    }
    return opened;
  }

 private:
  UniqueFd fd_;
};

class SafeOpen : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "dynprof-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(pattern.data()));
    folder_ = pattern;
    root_.reset(::open(pattern.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string why_not(const std::string& path) {
    auto file = open_below(root_.get(), path);
    return file ? "" : file.error().what;
  }

  fs::path folder_;
  UniqueFd root_;
};

TEST_F(SafeOpen, OpensFilesBelowTheRootOnly) {
  std::ofstream(folder_ / "file") << "text";
  fs::create_directory(folder_ / "etc");
  std::ofstream(folder_ / "etc" / "passwd") << "theirs";
  fs::create_symlink("/etc/passwd", folder_ / "link");
  fs::create_symlink("../../../../../../etc/passwd", folder_ / "climbs");
  EXPECT_EQ(why_not("/file"), "");
  for (const char* name : {"/link", "/climbs", "/../etc/passwd"}) {
    auto file = open_below(root_.get(), name);
    ASSERT_TRUE(file) << name << " " << file.error().what;
    char text[16] = {};
    ASSERT_GT(::read(file->get(), text, sizeof text - 1), 0);
    EXPECT_STREQ(text, "theirs") << name;
  }
}

TEST_F(SafeOpen, NeverOpensWhatIsNoFile) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  fs::create_directory(folder_ / "folder");
  fs::create_symlink("fifo", folder_ / "link");
  bool devices = ::mknod((folder_ / "device").c_str(), S_IFCHR | 0600, ::makedev(1, 5)) == 0;
  OpenCounter opened(folder_);
  EXPECT_EQ(why_not("/fifo"), "is no regular file");
  EXPECT_EQ(why_not("/link"), "is no regular file");
  EXPECT_EQ(why_not("/folder"), "is no regular file");
  if (devices) {
    EXPECT_EQ(why_not("/device"), "is no regular file");
  }
  EXPECT_EQ(opened.count(), 0);
  // The counter counts.
  UniqueFd fifo(::open((folder_ / "fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(opened.count(), 1);
}

TEST_F(SafeOpen, ReadsNothingThatTheKernelMakesUp) {
  UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const char* name : {"/proc/uptime", "/proc/self/environ", "/sys/kernel/uevent_seqnum"}) {
    auto file = open_below(root.get(), name);
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().what, "is made up by the kernel, not stored");
  }
  EXPECT_FALSE(open_below(root.get(), "/proc/self/root/etc/passwd")) << "through a magic link";
  EXPECT_TRUE(open_below(root.get(), "/etc/passwd"));
}

TEST_F(SafeOpen, AMappedDeviceIsNotOpened) {
  const fs::path path = folder_ / "device";
  if (::mknod(path.c_str(), S_IFCHR | 0600, ::makedev(1, 5)) != 0) GTEST_SKIP() << "no devices";
  UniqueFd device(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!device) GTEST_SKIP() << "devices may not be opened here";
  void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, device.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  auto mappings = read_mappings(::getpid());
  ASSERT_TRUE(mappings);
  OpenCounter opened(folder_);
  int seen = 0;
  for (const Mapping& mapping : *mappings) {
    if (mapping.path != path) continue;
    ++seen;
    EXPECT_FALSE(open_mapped_file(::getpid(), mapping));
  }
  ::munmap(at, 4096);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(opened.count(), 0);
}

// A process of another user, for as long as this lives.
class Stranger {
 public:
  Stranger() {
    int ready[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool changed = ::setgroups(0, nullptr) == 0 &&
                           ::setresgid(kStranger, kStranger, kStranger) == 0 &&
                           ::setresuid(kStranger, kStranger, kStranger) == 0;
      if (::write(ready[1], changed ? "y" : "n", 1) == 1) ::pause();
      ::_exit(0);
    }
    char answer = 'n';
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Stranger() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class TargetRightsTest : public SafeOpen {
 protected:
  void SetUp() override {
    SafeOpen::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  }
  fs::path put(const fs::path& name, mode_t mode, uid_t owner) {
    std::ofstream(folder_ / name) << "text of " << name.string();
    EXPECT_EQ(::chmod((folder_ / name).c_str(), mode), 0);
    EXPECT_EQ(::chown((folder_ / name).c_str(), owner, owner), 0);
    return folder_ / name;
  }
};

TEST_F(TargetRightsTest, NoFileIsCopiedThatTheTargetsUserCannotRead) {
  const Stranger stranger;
  TargetFiles files(stranger.pid());
  const auto why_not = [&](const fs::path& path) {
    auto text = files.read(path.string(), 1000);
    return text ? "" : text.error().what;
  };
  EXPECT_EQ(why_not(put("own.py", 0600, kStranger)), "");
  EXPECT_EQ(why_not(put("public.py", 0644, 0)), "");
  EXPECT_EQ(why_not(put("shadow.py", 0640, 0)), "belongs to uid 0, the target is uid 65534");
  // Readable for all, in a folder that is not: root's home is such a folder.
  fs::create_directory(folder_ / "home");
  ASSERT_EQ(::chmod((folder_ / "home").c_str(), 0700), 0);
  EXPECT_EQ(why_not(put("home/secret.py", 0644, 0)), "cannot be opened: Permission denied");
  EXPECT_EQ(why_not(put("home/own.py", 0644, kStranger)), "cannot be opened: Permission denied");
  // Through a folder of its own that is a link.
  fs::create_directory_symlink(folder_ / "home", folder_ / "cache");
  EXPECT_EQ(why_not(folder_ / "cache" / "secret.py"), "cannot be opened: Permission denied");
}

TEST_F(TargetRightsTest, NoThreadIsLeftWithThem) {
  const Stranger stranger;
  auto rights = TargetRights::of(stranger.pid());
  ASSERT_TRUE(rights) << rights.error().what;
  EXPECT_EQ(rights->uid, kStranger);
  EXPECT_EQ(rights->gid, kStranger);
  EXPECT_TRUE(rights->groups.empty());
  EXPECT_EQ(rights->capabilities, 0u);
  const int dumpable = ::prctl(PR_GET_DUMPABLE);
  uid_t inside = 0;
  (void)open_with(*rights, [&]() -> Result<UniqueFd> {
    inside = static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1)));
    return error("nothing");
  });
  EXPECT_EQ(inside, kStranger);
  EXPECT_EQ(::setfsuid(static_cast<uid_t>(-1)), 0);
  EXPECT_EQ(::prctl(PR_GET_DUMPABLE), dumpable);
  const fs::path secret = put("secret", 0600, 0);
  EXPECT_TRUE(UniqueFd(::open(secret.c_str(), O_RDONLY | O_CLOEXEC)));
}

TEST_F(TargetRightsTest, APerfMapIsNoWayToFilesOfOthers) {
  const Stranger stranger;
  const fs::path map = fmt::format("/tmp/perf-{}.map", stranger.pid());
  fs::create_symlink(put("secret", 0600, 0), map);
  EXPECT_FALSE(open_perf_map(stranger.pid()));
  fs::remove(map);
  fs::create_symlink(put("own", 0600, kStranger), map);
  EXPECT_TRUE(open_perf_map(stranger.pid()));
  fs::remove(map);
}

}  // namespace
}  // namespace dynprof
