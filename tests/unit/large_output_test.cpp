#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "symbolizer/base/file_output.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLarge = OutputFile::kCachedBytes + 3 * DirectBlock::kSize + 12'345;

class LargeOutputTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dynprof-large-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    for (std::size_t i = 0; i < kPiece; ++i)
      piece += static_cast<char>('a' + i * 7 % 26 + i / 251 % 3);
  }
  void TearDown() override { fs::remove_all(folder); }

  void write_pieces(ByteSink& sink, std::size_t size) const {
    const std::string_view all(piece);
    for (std::size_t at = 0; at < size; at += kPiece)
      sink.write(all.substr(0, std::min(kPiece, size - at)));
  }
  // How much of the file is what write_pieces wrote.
  std::size_t right_bytes(const fs::path& path) const {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string read(kPiece, 0);
    std::size_t right = 0;
    for (ssize_t count; (count = ::read(file.get(), read.data(), kPiece)) > 0;) {
      const auto size = static_cast<std::size_t>(count);
      const std::size_t begin = right % kPiece;
      for (std::size_t i = 0; i < size; ++i, ++right)
        if (read[i] != piece[(begin + i) % kPiece]) return right;
    }
    return right;
  }
  // Pages from `begin` to `end` of the file that are in the page cache.
  static std::size_t cached_pages(const fs::path& path, std::size_t begin, std::size_t end) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    void* mapped =
        ::mmap(nullptr, end - begin, PROT_READ, MAP_SHARED, file.get(), static_cast<off_t>(begin));
    std::vector<unsigned char> pages((end - begin) / 4096);
    EXPECT_EQ(::mincore(mapped, end - begin, pages.data()), 0);
    ::munmap(mapped, end - begin);
    std::size_t cached = 0;
    for (const unsigned char page : pages) cached += page & 1;
    return cached;
  }
  bool direct_writes_work() const {
    UniqueFd file(::open((folder / "probe").c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600));
    return file.valid();
  }

  static constexpr std::size_t kPiece = 100'003;
  std::string piece;
  fs::path folder;
};

TEST_F(LargeOutputTest, ALargeFileIsWhole) {
  auto file = OutputFile::create(folder / "large");
  ASSERT_TRUE(file);
  write_pieces(**file, kLarge);
  ASSERT_TRUE((*file)->finish());
  EXPECT_EQ(fs::file_size(folder / "large"), kLarge);
  EXPECT_EQ(right_bytes(folder / "large"), kLarge);
}

TEST_F(LargeOutputTest, OneLargeWriteIsWhole) {
  auto file = OutputFile::create(folder / "large");
  ASSERT_TRUE(file);
  std::string text;
  while (text.size() < kLarge) text += piece;
  text.resize(kLarge);
  (*file)->write(text);
  ASSERT_TRUE((*file)->finish());
  EXPECT_EQ(right_bytes(folder / "large"), kLarge);
}

TEST_F(LargeOutputTest, TheRestOfALargeFileIsNotInThePageCache) {
  if (!direct_writes_work()) GTEST_SKIP() << "this file system has no direct writes";
  auto file = OutputFile::create(folder / "large");
  ASSERT_TRUE(file);
  write_pieces(**file, kLarge);
  ASSERT_TRUE((*file)->finish());
  const std::size_t begin = OutputFile::kCachedBytes + DirectBlock::kAlignment;
  EXPECT_EQ(cached_pages(folder / "large", begin, begin + 2 * DirectBlock::kSize), 0u);
  EXPECT_GT(cached_pages(folder / "large", 0, 4 << 20), 0u);
}

TEST_F(LargeOutputTest, AFileThatIsNotNewIsWrittenThroughTheCache) {
  UniqueFd file(::open((folder / "shared").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  auto sink = OutputFile::adopt(UniqueFd(::dup(file.get())), "shared");
  write_pieces(*sink, kLarge);
  EXPECT_EQ(::fcntl(file.get(), F_GETFL) & O_DIRECT, 0);
  ASSERT_TRUE(sink->finish());
  EXPECT_EQ(right_bytes(folder / "shared"), kLarge);
}

TEST_F(LargeOutputTest, ADescriptorThatAnotherProcessHasIsLeftAsItWas) {
  UniqueFd file(::open((folder / "new").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const int before = ::fcntl(file.get(), F_GETFL);
  auto sink = OutputFile::adopt(UniqueFd(::dup(file.get())), "new", true);
  write_pieces(*sink, kLarge);
  ASSERT_TRUE(sink->finish());
  EXPECT_EQ(::fcntl(file.get(), F_GETFL), before);
  EXPECT_EQ(right_bytes(folder / "new"), kLarge);
}

// As on a file system that takes the flag and refuses the writes.
TEST_F(LargeOutputTest, RefusedDirectWritesGoThroughTheCache) {
  UniqueFd file(::open((folder / "odd").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(), piece.data(), 1), 1);
  auto direct = DirectBlock::begin(file.get());
  if (!direct) GTEST_SKIP() << "this file system has no direct writes";
  std::string text;
  while (text.size() < 2 * DirectBlock::kSize + 1) text += piece;
  ASSERT_TRUE(direct->write(std::string_view(text).substr(1)));
  ASSERT_TRUE(direct->finish());
  EXPECT_EQ(fs::file_size(folder / "odd"), text.size());
  EXPECT_EQ(right_bytes(folder / "odd"), text.size());
}

TEST_F(LargeOutputTest, ADiskThatBecomesFullIsAnErrorAndLeavesNothing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{OutputFile::kCachedBytes + DirectBlock::kSize + 100'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  auto file = OutputFile::create(folder / "large");
  ASSERT_TRUE(file);
  write_pieces(**file, kLarge);
  const auto finished = (*file)->finish();
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().errno_value, EFBIG);
  EXPECT_FALSE(fs::exists(folder / "large"));
}

}  // namespace
}  // namespace dynprof
