// Names of kernels in memory laid out as the CUDA driver's.
#include "user/gpu/driver_names.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

namespace dynprof {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

struct Function {
  const void* module = nullptr;
  const char* name = nullptr;
};

std::uint64_t handle_of(const Function& function) {
  return reinterpret_cast<std::uint64_t>(&function);
}

std::string name_of(const char* name) {
  const Function function{nullptr, name};
  return DriverNames(getpid()).of(handle_of(function), kSecond);
}

TEST(DriverNames, AreDemangled) {
  EXPECT_EQ(name_of("_Z5plainPf"), "plain(float*)");
  EXPECT_EQ(name_of("nvjet_sm90_tst_64x48_64x15_2x4_h_bz_NNT"),
            "nvjet_sm90_tst_64x48_64x15_2x4_h_bz_NNT");
  EXPECT_EQ(name_of("_ZN6cudapy8__main__3fooB3v1$241E5ArrayIfLi1E1C7mutableE").empty(), false);
}

TEST(DriverNames, OfWhatIsNoNameAreEmpty) {
  for (const char* text : {"", " ", "1st", "a b", "a\x1b[2J", "na\xc3\xafve", "a/b"})
    EXPECT_EQ(name_of(text), "") << text;
  EXPECT_EQ(name_of(nullptr), "");
  EXPECT_EQ(name_of(reinterpret_cast<const char*>(0xdead'beef'0000)), "");
  EXPECT_EQ(name_of(std::string(5000, 'x').c_str()), "") << "longer than any";
  DriverNames names(getpid());
  for (const std::uint64_t handle : {0ull, 1ull, 8ull, 0xdead'beef'0000ull, ~0ull, ~7ull})
    EXPECT_EQ(names.of(handle, kSecond), "") << handle;
}

TEST(DriverNames, AtTheEndOfReadableMemory) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const two =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(munmap(static_cast<char*>(two) + page, page), 0);
  char* const end = static_cast<char*>(two) + page;
  std::memcpy(end - 6, "edges", 6);
  EXPECT_EQ(name_of(end - 6), "edges");
  std::memcpy(end - 6, "edgesX", 6);
  EXPECT_EQ(name_of(end - 6), "") << "it does not end there";
  ASSERT_EQ(munmap(two, page), 0);
}

TEST(DriverNames, OfMoreKernelsThanAreRemembered) {
  const std::string name(4000, 'x');
  const std::vector<Function> functions(10'000, {nullptr, name.c_str()});
  DriverNames names(getpid());
  for (const Function& function : functions)
    ASSERT_EQ(names.of(handle_of(function), kSecond).empty(), false);
}

TEST(DriverNames, AreReadAgainAfterASecond) {
  Function function{nullptr, "first"};
  DriverNames names(getpid());
  EXPECT_EQ(names.of(handle_of(function), kSecond), "first");
  function.name = "second";
  EXPECT_EQ(names.of(handle_of(function), 2 * kSecond - 1), "first");
  EXPECT_EQ(names.of(handle_of(function), 2 * kSecond), "second");
  function.name = "not a name";
  EXPECT_EQ(names.of(handle_of(function), 4 * kSecond), "");
}

}  // namespace
}  // namespace dynprof
