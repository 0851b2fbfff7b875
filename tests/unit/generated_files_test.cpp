#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "user/generated/target_file.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

class GeneratedFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "dynprof-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(pattern.data()));
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path put(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
    return folder_ / name;
  }
  // As of our own process: its root is ours, its user too.
  Result<TargetFileText> read(const fs::path& path, std::size_t max = 1000) {
    return TargetFiles(getpid()).read(path.string(), max);
  }
  std::string why_not(const fs::path& path) {
    auto text = read(path);
    return text ? "read: " + text->content : text.error().what;
  }

  fs::path folder_;
};

TEST_F(GeneratedFiles, ReadsASourceFile) {
  auto text = read(put("c1.py", "print(1)\n"));
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(text->content, "print(1)\n");
  EXPECT_FALSE(text->truncated);
  EXPECT_EQ(text->problem, "");
}

TEST_F(GeneratedFiles, ReadsTheBeginningOfALongOne) {
  auto text = read(put("c1.py", std::string(200'000, 'y')), 70'000);
  ASSERT_TRUE(text);
  EXPECT_EQ(text->content.size(), 70'000u);
  EXPECT_TRUE(text->truncated);
  EXPECT_EQ(text->problem, "is 200000 bytes long");
  auto exact = read(put("c2.py", std::string(70'000, 'y')), 70'000);
  ASSERT_TRUE(exact);
  EXPECT_FALSE(exact->truncated);
}

TEST_F(GeneratedFiles, FollowsNoLinkAsTheFile) {
  fs::path real = put("real.py", "secret");
  fs::create_symlink(real, folder_ / "c1.py");
  fs::create_symlink("/etc/shadow", folder_ / "c2.py");
  EXPECT_EQ(why_not(folder_ / "c1.py"), "is a symbolic link, which is not followed");
  EXPECT_EQ(why_not(folder_ / "c2.py"), "is a symbolic link, which is not followed");
}

TEST_F(GeneratedFiles, ReadsRegularFilesOnly) {
  fs::create_directory(folder_ / "c1.py");
  ASSERT_EQ(mkfifo((folder_ / "c2.py").c_str(), 0600), 0);
  EXPECT_EQ(why_not(folder_ / "c1.py"), "is not a regular file");
  EXPECT_EQ(why_not(folder_ / "c2.py"), "is not a regular file");
  EXPECT_EQ(why_not(folder_ / "gone.py"), "cannot be opened: No such file or directory");
  EXPECT_EQ(why_not(put("c3.py", std::string("a\0b", 3))), "is not text");
}

TEST_F(GeneratedFiles, ReadsNoOtherPaths) {
  EXPECT_EQ(why_not("/etc/shadow"), "is not named like a source file");
  EXPECT_EQ(why_not("c1.py"), "is not an absolute path");
  EXPECT_EQ(why_not(""), "is not an absolute path");
  EXPECT_EQ(why_not("/" + std::string(5000, 'x') + ".py"), "is no path");
  EXPECT_EQ(why_not(std::string("/a\0.py", 6)), "is no path");
}

TEST_F(GeneratedFiles, ReadsNoFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  fs::path path = put("c1.py", "theirs");
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_EQ(why_not(path), "belongs to uid 65534, the target is uid 0");
}

TEST_F(GeneratedFiles, ALargeFileOfNothingIsNoText) {
  fs::path path = put("c1.py", "");
  ASSERT_EQ(truncate(path.c_str(), 1 << 30), 0);
  EXPECT_EQ(why_not(path), "is 1073741824 bytes long and is not text");
}

}  // namespace
}  // namespace dynprof
