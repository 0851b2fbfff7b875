// Which instruction of a function a probe is set on.
#include "user/target/probe_offset.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

using namespace std::string_literals;

// The offset from the first instruction of `code`.
std::uint64_t at(const std::string& code, ProbeReads reads, bool calls = true) {
  const std::string bytes = "...." + code;
  const UniqueFd fd(::memfd_create("code", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return probe_offset(fd.get(), 4, reads, calls) - 4;
}

TEST(ProbeOffset, IsOnTheJumpBehindATest) {
  const auto offset = [](const std::string& code) { return at(code, ProbeReads::kArguments); };
  EXPECT_EQ(offset("\x48\x85\xff\x74\x1b"), 3u);       // test %rdi,%rdi; je
  EXPECT_EQ(offset("\x48\x85\xff\x75\x1b"), 3u);       // test %rdi,%rdi; jne
  EXPECT_EQ(offset("\x48\x85\xff\x41\x57"), 3u);       // test %rdi,%rdi; push %r15
  EXPECT_EQ(offset("\x48\x85\xf6\x74\x1b"), 0u);       // test %rsi,%rsi; je
  EXPECT_EQ(offset("\x80\x7f\x68\x00\x74\x5a"s), 4u);  // cmpb $0x0,0x68(%rdi); je
  EXPECT_EQ(offset("\xf3\x0f\x1e\xfa\x55"), 4u);       // endbr64; push %rbp
  EXPECT_EQ(offset("\x41\x57\x41\x56"), 0u);           // push %r15
  EXPECT_EQ(offset("\x48\x85\xff"), 0u) << "the file ends";
  EXPECT_EQ(offset(""), 0u) << "the file ends";
}

TEST(ProbeOffset, ArgumentsAndReturnAddressAreStillThere) {
  const std::string moves_stack = "\x48\x83\xec\x18\x74\x1b";  // sub $0x18,%rsp; je
  EXPECT_EQ(at(moves_stack, ProbeReads::kArguments), 0u);
  EXPECT_EQ(at(moves_stack, ProbeReads::kNothing), 4u);
  const std::string clears = "\x31\xf6\x74\x1b";  // xor %esi,%esi; je
  EXPECT_EQ(at(clears, ProbeReads::kArguments), 0u);
  EXPECT_EQ(at(clears, ProbeReads::kNothing), 2u);
}

// time_time_ns as compilers made it.
TEST(ProbeOffset, IsOnTheCallInTimeNs) {
  const std::string of_3_11 = "\x48\x83\xec\x18\x31\xf6\x48\x8d\x7c\x24\x08\xe8\xa0\xb9\xf2\xff"s;
  const std::string of_3_13 = "\x48\x83\xec\x18\x48\x8d\x7c\x24\x08\xe8\x72\x56\xd6\xff"s;
  const std::string of_3_14 =
      "\xf3\x0f\x1e\xfa\x48\x83\xec\x18\x48\x8d\x7c\x24\x08\xe8\x1e\x00\x00\x00"s;
  const std::string of_3_15 =
      "\xf3\x0f\x1e\xfa\x55\x48\x89\xe5\x48\x83\xec\x10\x48\x8d\x7d\xf8\xe8\x1b\x00\x00\x00"s;
  EXPECT_EQ(at(of_3_11, ProbeReads::kNothing), 11u);
  EXPECT_EQ(at(of_3_13, ProbeReads::kNothing), 9u);
  EXPECT_EQ(at(of_3_14, ProbeReads::kNothing), 13u);
  EXPECT_EQ(at(of_3_15, ProbeReads::kNothing), 4u) << "the push is emulated as well";
  EXPECT_EQ(at(of_3_11, ProbeReads::kNothing, false), 0u) << "calls are not emulated correctly";
  EXPECT_EQ(at(of_3_15, ProbeReads::kNothing, false), 4u);
}

TEST(ProbeOffset, StackProtectorIsKnown) {
  const std::string code =
      "\x48\x83\xec\x18"                      // sub $0x18,%rsp
      "\x64\x48\x8b\x04\x25\x28\x00\x00\x00"  // mov %fs:0x28,%rax
      "\x48\x89\x44\x24\x08"                  // mov %rax,8(%rsp)
      "\x31\xc0\x48\x89\xe7"                  // xor %eax,%eax; mov %rsp,%rdi
      "\xe8\x1e\x00\x00\x00"s;
  EXPECT_EQ(at(code, ProbeReads::kNothing), 23u);
  for (std::size_t size = 0; size < 23; ++size)
    EXPECT_EQ(at(code.substr(0, size), ProbeReads::kNothing), 0u) << "the file ends at " << size;
}

TEST(ProbeOffset, AnUnknownInstructionEndsTheSearch) {
  EXPECT_EQ(at("\x48\x83\xec\x18\x0f\x05\x74\x1b", ProbeReads::kNothing), 0u);
}

}  // namespace
}  // namespace dynprof
