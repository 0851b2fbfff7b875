// Whose file system a file lies on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbolizer/base/unique_fd.h"
#include "user/target/served_files.h"

namespace dynprof {
namespace {

TEST(ServedFiles, ReadsALineOfMounts) {
  const auto disk = parse_mount("36 35 98:1 / /a\\040- rw,noatime master:1 - ext3 /dev/root rw");
  ASSERT_TRUE(disk);
  EXPECT_EQ(disk->id, 36u);
  EXPECT_EQ(disk->device_major, 98u);
  EXPECT_EQ(disk->device_minor, 1u);
  EXPECT_FALSE(disk->fuse);
  const auto served = parse_mount(
      "410 28 0:55 / /home/u/m rw,nosuid - fuse.sshfs u@h:user_id=0 rw,user_id=1000,group_id=100");
  ASSERT_TRUE(served);
  EXPECT_TRUE(served->fuse);
  EXPECT_EQ(served->owner, uid_t{1000});
  const auto unnamed = parse_mount("1 2 0:5 / /m rw - fuse x rw,user_id=99999999999");
  ASSERT_TRUE(unnamed);
  EXPECT_FALSE(unnamed->owner);
  for (const char* bad :
       {"", "x", "1 2", "1 2 3:4 / /m rw shared:1", "1 2 a:4 / /m rw - ext4 x rw"})
    EXPECT_FALSE(parse_mount(bad)) << bad;
}

TEST(ServedFiles, UsersOfANamespace) {
  constexpr const char* kMap =
      "         0       1000          1\n         1     100000      65536\n";
  EXPECT_EQ(map_user(kMap, 0), uid_t{1000});
  EXPECT_EQ(map_user(kMap, 1), uid_t{100'000});
  EXPECT_EQ(map_user(kMap, 65'536), uid_t{165'535});
  EXPECT_FALSE(map_user(kMap, 65'537));
  EXPECT_FALSE(map_user("", 0));
  EXPECT_FALSE(map_user("1 2", 1));
}

TEST(ServedFiles, OrdinaryFilesAreNotServed) {
  for (const char* path : {"/proc/self/exe", "/usr/bin/env", "/proc/self/status"}) {
    const UniqueFd file(::open(path, O_PATH | O_CLOEXEC));
    EXPECT_TRUE(check_server(file.get(), 0)) << path;
    EXPECT_TRUE(check_server(file.get(), ::getpid())) << path;
  }
  const UniqueFd memory(::memfd_create("unlisted", MFD_CLOEXEC));
  EXPECT_TRUE(check_server(memory.get(), ::getpid()));
}

}  // namespace
}  // namespace dynprof
