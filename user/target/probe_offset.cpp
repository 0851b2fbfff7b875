#include "user/target/probe_offset.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace dynprof {
namespace {

using Code = std::span<const unsigned char>;

constexpr std::size_t kBytes = 48;

// An instruction that may be before the probe.
struct Pattern {
  std::array<unsigned char, 5> bytes;  // the first ones
  std::size_t compared;
  std::size_t size;
  bool keeps_arguments;
};

// What compilers put in front of the first call in CPython's time_time_ns (3.10 to 3.15, GCC 12 to 15), and the like.
constexpr std::array kPatterns = {
    Pattern{{0xf3, 0x0f, 0x1e, 0xfa}, 4, 4, true},         // endbr64
    Pattern{{0x48, 0x85, 0xff}, 3, 3, true},               // test %rdi,%rdi
    Pattern{{0x80, 0x7f}, 2, 4, true},                     // cmpb $m,n(%rdi)
    Pattern{{0x48, 0x83, 0xec}, 3, 4, false},              // sub $n,%rsp
    Pattern{{0x48, 0x81, 0xec}, 3, 7, false},              // sub $n,%rsp
    Pattern{{0x31, 0xf6}, 2, 2, false},                    // xor %esi,%esi
    Pattern{{0x31, 0xc0}, 2, 2, false},                    // xor %eax,%eax
    Pattern{{0x48, 0x8d, 0x7c, 0x24}, 4, 5, false},        // lea n(%rsp),%rdi
    Pattern{{0x48, 0x89, 0xe7}, 3, 3, false},              // mov %rsp,%rdi
    Pattern{{0x64, 0x48, 0x8b, 0x04, 0x25}, 5, 9, false},  // mov %fs:n,%rax
    Pattern{{0x48, 0x89, 0x44, 0x24}, 4, 5, false},        // mov %rax,n(%rsp)
    Pattern{{0x48, 0xc7, 0x44, 0x24}, 4, 9, false},        // movq $m,n(%rsp)
};

bool matches(const Pattern& pattern, Code code) {
  return pattern.size <= code.size() &&
         std::equal(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(pattern.compared),
                    pattern.bytes.begin());
}

// As branch_setup_xol_ops and push_setup_xol_ops in Linux's arch/x86/kernel/uprobes.c, without prefixes.
bool is_emulated(Code code, bool calls) {
  const auto is_push = [](unsigned char byte) { return byte >= 0x50 && byte <= 0x57; };
  const auto is_jump = [](unsigned char byte) {
    return (byte >= 0x70 && byte <= 0x7f) || byte == 0xeb || byte == 0xe9;
  };
  const unsigned char first = code[0];
  const unsigned char second = code.size() > 1 ? code[1] : 0;
  return is_push(first) || is_jump(first) || (first == 0x41 && is_push(second)) ||
         (first == 0x0f && second >= 0x80 && second <= 0x8f) || (calls && first == 0xe8);
}

std::optional<std::size_t> find_emulated(Code code, ProbeReads reads, bool calls) {
  std::size_t at = 0;
  while (at < code.size()) {
    const Code rest = code.subspan(at);
    if (is_emulated(rest, calls)) return at;
    auto known = std::find_if(kPatterns.begin(), kPatterns.end(), [&](const Pattern& pattern) {
      return (pattern.keeps_arguments || reads == ProbeReads::kNothing) && matches(pattern, rest);
    });
    if (known == kPatterns.end()) return std::nullopt;
    at += known->size;
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t probe_offset(int fd, std::uint64_t offset, ProbeReads reads, bool calls) {
  std::array<unsigned char, kBytes> code{};
  const ssize_t size = ::pread(fd, code.data(), code.size(), static_cast<off_t>(offset));
  if (size <= 0) return offset;
  return offset +
         find_emulated(Code(code).first(static_cast<std::size_t>(size)), reads, calls).value_or(0);
}

}  // namespace dynprof
