// Memory that may never come is read by another process, which is given up when it does not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>

#include "user/target/present_pages.h"
#include "user/target/reading_process.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kPage = 4096;

// A child with three pages at the same address: written, never touched, and one that does not come.
class Target {
 public:
  Target() {
    base_ = static_cast<char*>(
        ::mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      std::strcpy(base_, "here");
      const bool blocked = block(base_ + 2 * kPage);
      (void)!::write(ready[1], blocked ? "y" : "n", 1);
      for (;;) ::pause();
    }
    char answer = 'n';
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    blocked_ = answer == 'y';
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Target() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(base_, 3 * kPage);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  pid_t pid() const { return pid_; }
  bool blocked() const { return blocked_; }
  std::uint64_t page(int number) const {
    return reinterpret_cast<std::uint64_t>(base_) + static_cast<std::uint64_t>(number) * kPage;
  }

 private:
  static bool block(char* page) {
    const int fd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
    uffdio_api api = {UFFD_API, 0, 0};
    uffdio_register part = {};
    part.range = {reinterpret_cast<std::uint64_t>(page), kPage};
    part.mode = UFFDIO_REGISTER_MODE_MISSING;
    return fd >= 0 && ::ioctl(fd, UFFDIO_API, &api) == 0 &&
           ::ioctl(fd, UFFDIO_REGISTER, &part) == 0;
  }

  char* base_ = nullptr;
  pid_t pid_ = 0;
  bool blocked_ = false;
};

RemoteRange range_at(std::uint64_t address, std::span<std::byte> into) { return {address, into}; }

TEST(PresentPages, ReportsWhichPagesArePresent) {
  const Target target;
  std::array<std::byte, 16> bytes;
  PresentPages pages;
  const RemoteRange ranges[] = {
      range_at(target.page(0), bytes),     range_at(target.page(1), bytes),
      range_at(target.page(1) - 8, bytes), range_at(16, bytes),
      range_at(~std::uint64_t{7}, bytes),  range_at(target.page(0), bytes)};
  EXPECT_EQ(pages.of(target.pid(), ranges),
            (std::vector<bool>{true, false, false, false, false, true}));
}

TEST(PresentPages, AsksAgainAfterAWhile) {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(page, 1, kPage);
  std::array<std::byte, 16> bytes;
  const RemoteRange range[] = {range_at(reinterpret_cast<std::uint64_t>(page), bytes)};
  PresentPages pages;
  EXPECT_EQ(pages.of(::getpid(), range), std::vector<bool>{true});
  ASSERT_EQ(::madvise(page, kPage, MADV_DONTNEED), 0);
  ::usleep(150'000);
  EXPECT_EQ(pages.of(::getpid(), range), std::vector<bool>{false});
  ::munmap(page, kPage);
}

TEST(ReadingProcess, ReadsWhatIsNotPresent) {
  const Target target;
  ReadingProcess reader;
  std::array<std::byte, 8> bytes;
  int problem = 0;
  EXPECT_EQ(reader.read(target.pid(), target.page(0), bytes, problem), bytes.size());
  EXPECT_STREQ(reinterpret_cast<const char*>(bytes.data()), "here");
  EXPECT_EQ(reader.read(target.pid(), target.page(1), bytes, problem), bytes.size());
  EXPECT_EQ(bytes[0], std::byte{0});
  EXPECT_EQ(reader.read(target.pid(), 16, bytes, problem), 0u);
  EXPECT_EQ(problem, EFAULT);
  std::string large(100'000, 'x');
  EXPECT_EQ(reader.read(target.pid(), reinterpret_cast<std::uint64_t>(&large),
                        std::as_writable_bytes(std::span(large)).first(24), problem),
            24u);
  EXPECT_FALSE(reader.given_up(target.pid()));
}

TEST(ReadingProcess, GivesUpWhatDoesNotCome) {
  const Target stuck, other;
  if (!stuck.blocked()) GTEST_SKIP() << "no userfaultfd for us";
  ReadingProcess reader(milliseconds(200), 2);
  std::array<std::byte, 8> bytes;
  int problem = 0;
  const auto began = Clock::now();
  EXPECT_EQ(reader.read(stuck.pid(), stuck.page(2), bytes, problem), 0u);
  EXPECT_EQ(problem, ETIMEDOUT);
  EXPECT_TRUE(reader.given_up(stuck.pid()));
  EXPECT_FALSE(reader.given_up(other.pid()));
  EXPECT_EQ(reader.read(stuck.pid(), stuck.page(0), bytes, problem), 0u);
  EXPECT_EQ(reader.read(other.pid(), other.page(0), bytes, problem), bytes.size());
  EXPECT_LT(Clock::now() - began, milliseconds(20'000));
  // So many, and no more of any.
  EXPECT_EQ(reader.read(other.pid(), other.page(2), bytes, problem), 0u);
  const Target third;
  EXPECT_EQ(reader.read(third.pid(), third.page(1), bytes, problem), 0u);
  EXPECT_FALSE(reader.given_up(third.pid()));
}

TEST(ReadingProcess, MemoryReadsGoThroughIt) {
  const Target target;
  ProcessMemory memory(target.pid());
  std::array<std::byte, 8> here, absent, nowhere, again;
  RemoteRange ranges[] = {range_at(target.page(0), here), range_at(target.page(1), absent),
                          range_at(16, nowhere), range_at(target.page(0), again)};
  memory.read_many(ranges);
  EXPECT_TRUE(ranges[0].complete());
  EXPECT_TRUE(ranges[1].complete());
  EXPECT_EQ(ranges[2].done, 0u);
  EXPECT_TRUE(ranges[3].complete());
  EXPECT_STREQ(reinterpret_cast<const char*>(again.data()), "here");
  if (!target.blocked()) GTEST_SKIP() << "no userfaultfd for us";
  const auto began = Clock::now();
  EXPECT_FALSE(memory.read<int>(target.page(2)));
  EXPECT_EQ(memory.last_error(), ETIMEDOUT);
  const auto took = Clock::now() - began;
  EXPECT_GT(took, milliseconds(1500));
  EXPECT_LT(took, milliseconds(20'000));
  EXPECT_FALSE(memory.read<int>(target.page(0))) << "given up";
}

}  // namespace
}  // namespace dynprof
