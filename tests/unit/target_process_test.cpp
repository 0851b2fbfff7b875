#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "user/target/process.h"
#include "user/target/python_image.h"
#include "user/target/python_layouts.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

TEST(TargetMapping, ParsesALineOfMaps) {
  auto m = parse_mapping(
      "7f00aa000000-7f00aa021000 r-xp 0001f000 08:1a 1234567                    /usr/lib/a b.so");
  ASSERT_TRUE(m);
  EXPECT_EQ(m->start, 0x7f00aa000000u);
  EXPECT_EQ(m->end, 0x7f00aa021000u);
  EXPECT_EQ(m->offset, 0x1f000u);
  EXPECT_EQ(m->device_major, 8u);
  EXPECT_EQ(m->device_minor, 0x1au);
  EXPECT_EQ(m->inode, 1234567u);
  EXPECT_EQ(m->path, "/usr/lib/a b.so");
  EXPECT_TRUE(m->readable && m->executable && !m->writable && m->is_file());
}

TEST(TargetMapping, KnowsAnonymousSpecialAndDeletedOnes) {
  auto anonymous = parse_mapping("7f00-8f00 rw-p 00000000 00:00 0 ");
  ASSERT_TRUE(anonymous);
  EXPECT_EQ(anonymous->path, "");
  EXPECT_FALSE(anonymous->is_file());
  auto heap = parse_mapping("7f00-8f00 rw-p 00000000 00:00 0                          [heap]");
  ASSERT_TRUE(heap);
  EXPECT_FALSE(heap->is_file());
  auto deleted = parse_mapping("7f00-8f00 r--p 00000000 08:01 5  /tmp/x\\012y (deleted)");
  ASSERT_TRUE(deleted);
  EXPECT_TRUE(deleted->deleted);
  EXPECT_EQ(deleted->path, "/tmp/x\ny");
}

TEST(TargetMapping, RejectsMalformedLine) {
  for (const char* line : {"", "x", "7f00", "7f00-", "7f00-6f00 r--p 0 0:0 0 ", "7f00-8f00",
                           "7f00-8f00 r--", "7f00-8f00 r--p zz 08:01 5 /a",
                           "7f00-8f00 r--p 0 08 5 /a", "fffffffffffffffff-8f00 r--p 0 0:0 0"}) {
    EXPECT_FALSE(parse_mapping(line)) << line;
  }
}

TEST(TargetMapping, EachPrefixOfALineIsHarmless) {
  std::string line = "7f00aa000000-7f00aa021000 r-xp 0001f000 08:1a 12 /usr/lib/libpython3.11.so";
  for (std::size_t size = 0; size <= line.size(); ++size) {
    auto m = parse_mapping(std::string_view(line).substr(0, size));
    if (m) {
      EXPECT_LE(m->path.size(), line.size());
    }
  }
}

TEST(TargetVersion, IsReadFromPaths) {
  EXPECT_EQ(version_in_path("/usr/bin/python3.11"), python_version(3, 11));
  EXPECT_EQ(version_in_path("/opt/lib/libpython3.13.so.1.0"), python_version(3, 13));
  EXPECT_EQ(version_in_path("/x/_ssl.cpython-312-x86_64-linux-gnu.so"), python_version(3, 12));
  EXPECT_EQ(version_in_path("/x/_ssl.cpython-38-x86_64-linux-gnu.so"), python_version(3, 8));
  EXPECT_EQ(version_in_path("/usr/lib/python3.10/lib-dynload/x.so"), python_version(3, 10));
  EXPECT_EQ(version_in_path("/usr/lib/libpython2.7.so.1.0"), python_version(2, 7));
  EXPECT_EQ(version_in_path("/usr/lib/libpython3.13t.so.1.0"), python_version(3, 13));
  for (const char* none : {"", "/", "/usr/bin/python", "/usr/bin/python3", "/bin/sleep",
                           "/usr/lib/libpython3.so", "/x/a.cpython-999999-x.so", "/lib/python3.",
                           "/x/libpython3.1111.so", "/x/a.cpython-", "/opt/python9.9"}) {
    EXPECT_EQ(version_in_path(none), 0) << none;
  }
}

TEST(TargetProcess, ReadsItself) {
  auto stat = read_process_stat(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getppid());
  EXPECT_FALSE(stat->kernel_thread);
  EXPECT_FALSE(stat->zombie());
  EXPECT_GT(stat->start_ticks, 0u);
  auto uid = process_uid(::getpid());
  ASSERT_TRUE(uid);
  EXPECT_EQ(*uid, ::getuid());
  auto threads = list_threads(::getpid());
  ASSERT_TRUE(threads);
  EXPECT_EQ(threads->front(), ::getpid());
  EXPECT_EQ(namespace_ids(::getpid(), ::getpid()).empty(), false);
  auto shared = shares_our_pid_namespace(::getpid());
  ASSERT_TRUE(shared);
  EXPECT_TRUE(*shared);
}

TEST(TargetProcess, NoSuchPidIsReported) {
  for (pid_t pid : {0, -1, 2147483646}) {
    auto stat = read_process_stat(pid);
    ASSERT_FALSE(stat);
    EXPECT_EQ(stat.error().errno_value, ESRCH);
  }
}

TEST(TargetProcess, HasEndedBeforeItsParentKnows) {
  EXPECT_FALSE(has_ended(::getpid()));
  EXPECT_TRUE(has_ended(2147483646));
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  EXPECT_FALSE(has_ended(child));
  ::kill(child, SIGKILL);
  for (int i = 0; i < 1000 && !has_ended(child); ++i) ::usleep(5000);
  EXPECT_TRUE(has_ended(child));
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(has_ended(child));
  EXPECT_EQ(ended_error(child).errno_value, ESRCH);
}

// A child whose name tries to look like the rest of /proc/PID/stat.
TEST(TargetProcess, NameWithParenthesesDoesNotConfuse) {
  pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, ") Z 1 (x) R");
    for (;;) ::pause();
  }
  std::string comm;
  for (int i = 0; i < 200 && comm != ") Z 1 (x) R"; ++i) {
    ::usleep(5000);
    comm = read_comm(child, child);
  }
  auto stat = read_process_stat(child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->comm, ") Z 1 (x) R");
  EXPECT_EQ(stat->parent, ::getpid());
  EXPECT_FALSE(stat->zombie());
}

TEST(TargetProcess, OpensTheFileThatIsMapped) {
  auto mappings = read_mappings(::getpid());
  ASSERT_TRUE(mappings);
  std::string exe = read_exe(::getpid());
  bool found = false;
  for (const Mapping& mapping : *mappings) {
    if (mapping.path != exe) continue;
    found = true;
    auto fd = open_mapped_file(::getpid(), mapping);
    ASSERT_TRUE(fd) << fd.error().what;
    std::array<char, 4> magic{};
    ASSERT_EQ(::pread(fd->get(), magic.data(), magic.size(), 0), 4);
    EXPECT_EQ(std::string(magic.data(), 4),
              "\x7f"
              "ELF");
  }
  EXPECT_TRUE(found);
}

class TargetMemory : public ::testing::TestWithParam<ProcessMemory::Way> {};

// Two readable pages and an unreadable one.
TEST_P(TargetMemory, ReadsUpToTheFaultAndGoesOn) {
  auto* page = static_cast<std::byte*>(
      ::mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(page, MAP_FAILED);
  page[0] = std::byte{1};
  page[8191] = std::byte{2};
  ASSERT_EQ(::munmap(page + 8192, 4096), 0);
  auto base = reinterpret_cast<std::uint64_t>(page);
  ProcessMemory memory(::getpid(), GetParam());
  std::array<std::byte, 16> a;
  std::array<std::byte, 16> b;
  std::array<std::byte, 16> c;
  std::array<std::byte, 16> d;
  RemoteRange ranges[] = {{base, a}, {base + 8192, b}, {base + 8192 - 8, c}, {base, d}};
  memory.read_many(ranges);
  EXPECT_TRUE(ranges[0].complete());
  EXPECT_EQ(ranges[1].done, 0u);
  EXPECT_EQ(ranges[2].done, 8u);
  EXPECT_EQ(c[7], std::byte{2});
  EXPECT_TRUE(ranges[3].complete());
  EXPECT_EQ(d[0], std::byte{1});
  EXPECT_FALSE(memory.read<std::uint64_t>(base + 8192));
  EXPECT_FALSE(memory.read<std::uint64_t>(8));
  EXPECT_FALSE(memory.read<std::uint64_t>(0xffff800000000000));
  ::munmap(page, 8192);
}

TEST_P(TargetMemory, ManyRangesKeepTheirOrder) {
  std::vector<std::uint32_t> values(3000);
  std::vector<std::uint32_t> got(values.size());
  std::vector<RemoteRange> ranges;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint32_t>(i * 7);
    bool bad = i % 100 == 50;
    ranges.push_back({bad ? 16 : reinterpret_cast<std::uint64_t>(&values[i]),
                      std::as_writable_bytes(std::span(&got[i], 1))});
  }
  ProcessMemory memory(::getpid(), GetParam());
  memory.read_many(ranges);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(ranges[i].complete(), i % 100 != 50);
    EXPECT_EQ(got[i], i % 100 == 50 ? 0 : values[i]);
  }
}

TEST_P(TargetMemory, StringsAreBounded) {
  ProcessMemory memory(::getpid(), GetParam());
  std::string text(1000, 'x');
  auto at = reinterpret_cast<std::uint64_t>(text.c_str());
  EXPECT_EQ(memory.read_c_string(at, 2000), text);
  EXPECT_FALSE(memory.read_c_string(at, 999));
  EXPECT_FALSE(memory.read_c_string(64, 10));
}

INSTANTIATE_TEST_SUITE_P(Ways, TargetMemory,
                         ::testing::Values(ProcessMemory::Way::kCall, ProcessMemory::Way::kFile));

TEST(TargetGone, AProcessThatIsGoneIsNotReadable) {
  pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  ProcessMemory memory(child);
  EXPECT_FALSE(memory.read<std::uint64_t>(reinterpret_cast<std::uint64_t>(&child)));
  EXPECT_EQ(memory.last_error(), ESRCH);
  EXPECT_FALSE(memory.check_access());
}

}  // namespace
}  // namespace dynprof
