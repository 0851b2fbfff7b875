// USDT probes of an ELF file: those of this test program itself, and of what is left of it.
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>
// The macro above asks for it.
extern "C" {
__attribute__((section(".probes"), used)) unsigned short usdt_test_here_semaphore = 0;
}

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>

#include "symbolizer/base/unique_fd.h"
#include "user/gpu/usdt_notes.h"

namespace dynprof {
namespace {

__attribute__((noinline)) void fire(int number) { STAP_PROBE1(usdt_test, here, number); }

std::string own_file() {
  std::ifstream file("/proc/self/exe", std::ios::binary | std::ios::ate);
  std::string bytes(static_cast<std::size_t>(file.tellg()), '\0');
  file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

UniqueFd in_memory(std::string_view bytes) {
  UniqueFd fd(::memfd_create("elf", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return fd;
}

TEST(UsdtNotes, FindsTheProbeAndItsSemaphore) {
  fire(1);
  UniqueFd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  auto notes = read_usdt_notes(self.get());
  ASSERT_TRUE(notes.has_value());
  auto found = std::find_if(notes->begin(), notes->end(), [](const UsdtNote& note) {
    return note.provider == "usdt_test" && note.name == "here";
  });
  ASSERT_NE(found, notes->end());
  EXPECT_NE(found->arguments.find('@'), std::string::npos);
  const std::string file = own_file();
  ASSERT_LT(found->location, file.size());
  EXPECT_EQ(static_cast<unsigned char>(file[found->location]), 0x90) << "a nop is there";
  ASSERT_LT(found->semaphore + 1, file.size());
  EXPECT_NE(found->semaphore, 0u);
  EXPECT_EQ(file[found->semaphore], 0);
}

TEST(UsdtNotes, WhatIsNoElfFileIsAnError) {
  for (std::string_view bytes : {"",
                                 "\x7f"
                                 "ELF",
                                 "hello, world", "#!/bin/sh\n"}) {
    UniqueFd fd = in_memory(bytes);
    auto notes = read_usdt_notes(fd.get());
    EXPECT_TRUE(!notes.has_value() || notes->empty());
  }
}

// Bytes changed in the headers and the notes: found or not, but read within the file.
TEST(UsdtNotes, DamagedFilesAreReadWithoutHarm) {
  std::string file = own_file();
  const std::size_t note = file.find("usdt_test");
  ASSERT_NE(note, std::string::npos);
  Elf64_Ehdr header;
  std::copy_n(file.data(), sizeof header, reinterpret_cast<char*>(&header));
  UniqueFd fd = in_memory(file);
  std::mt19937 random(3);
  const std::size_t sections = std::size_t{header.e_shnum} * header.e_shentsize;
  for (int round = 0; round < 400; ++round) {
    const std::size_t where[] = {random() % 64 + 16, note - 64 + random() % 160,
                                 header.e_shoff + random() % sections,
                                 header.e_phoff + random() % 600};
    const std::size_t at = where[static_cast<std::size_t>(round) % 4];
    const char changed = static_cast<char>(random());
    ASSERT_EQ(::pwrite(fd.get(), &changed, 1, static_cast<off_t>(at)), 1);
    if (auto notes = read_usdt_notes(fd.get())) {
      for (const UsdtNote& one : *notes) EXPECT_LT(one.name.size(), file.size());
    }
    ASSERT_EQ(::pwrite(fd.get(), &file[at], 1, static_cast<off_t>(at)), 1);
  }
}

}  // namespace
}  // namespace dynprof
