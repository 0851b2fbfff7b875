#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "user/target/elf_image.h"
#include "user/target/process.h"

// Found by its name in the symbol table of the test program itself.
extern "C" {
int target_elf_test_marker = 42;
}

namespace dynprof {
namespace {

std::vector<char> read_whole(const char* path) {
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  std::vector<char> bytes;
  std::array<char, 65536> buffer;
  for (ssize_t got; (got = ::read(fd.get(), buffer.data(), buffer.size())) > 0;) {
    bytes.insert(bytes.end(), buffer.data(), buffer.data() + got);
  }
  return bytes;
}

UniqueFd in_memory(const std::vector<char>& bytes) {
  UniqueFd fd(::memfd_create("elf", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return fd;
}

TEST(TargetElf, FindsASymbolWhereItIs) {
  std::string exe = read_exe(::getpid());
  ReadBudget budget = budget_for_one_file();
  auto elf = ElfImage::open(UniqueFd(::open(exe.c_str(), O_RDONLY | O_CLOEXEC)), exe, budget);
  ASSERT_TRUE(elf) << elf.error().what;
  auto mappings = read_mappings(::getpid());
  ASSERT_TRUE(mappings);
  std::vector<Mapping> own;
  for (const Mapping& mapping : *mappings) {
    if (mapping.path == exe) own.push_back(mapping);
  }
  auto bias = elf->load_bias(own);
  ASSERT_TRUE(bias);
  constexpr std::array<std::string_view, 2> kNames = {"target_elf_test_marker",
                                                      "no_such_symbol_anywhere"};
  auto found = elf->find_symbols(kNames, budget);
  ASSERT_TRUE(found[0]);
  EXPECT_FALSE(found[1]);
  EXPECT_EQ(found[0]->address + *bias, reinterpret_cast<std::uint64_t>(&target_elf_test_marker));
  EXPECT_EQ(found[0]->size, sizeof target_elf_test_marker);
  // Any part of its mappings gives the same answer: RELRO and hugepages split and drop them.
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(elf->load_bias(std::span(own).subspan(i)), bias) << own[i].offset;
  }
}

TEST(TargetElf, RejectsNonElfFile) {
  for (std::string text : {std::string(), std::string("#!/bin/sh\n"), std::string(4096, '\0'),
                           std::string("\x7f"
                                       "ELF")}) {
    ReadBudget budget = budget_for_one_file();
    EXPECT_FALSE(ElfImage::open(in_memory({text.begin(), text.end()}), "x", budget));
  }
}

void look(const std::vector<char>& bytes) {
  ReadBudget budget = budget_for_one_file();
  auto elf = ElfImage::open(in_memory(bytes), "x", budget);
  if (!elf) return;
  constexpr std::array<std::string_view, 2> kNames = {"main", "_PyRuntime"};
  (void)elf->find_symbols(kNames, budget);
  Mapping mapping;
  mapping.start = 0x10000;
  mapping.end = 0x20000;
  (void)elf->load_bias(std::span(&mapping, 1));
}

TEST(TargetElf, CutAndDamagedFilesAreHarmless) {
  std::vector<char> good = read_whole("/usr/bin/env");
  ASSERT_GT(good.size(), 64u);
  for (std::size_t size = 0; size < good.size(); size += good.size() / 97 + 1) {
    look({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
  }
  std::mt19937 random(11);
  // Damage where it hurts: the header, the program headers, the section headers at the end.
  for (int round = 0; round < 400; ++round) {
    std::vector<char> bad = good;
    for (int i = 0; i < 4; ++i) {
      std::size_t tail = good.size() - 2048;
      std::size_t at = random() % 2 ? random() % 1024 : tail + random() % 2048;
      bad[at] = static_cast<char>(random());
    }
    look(bad);
  }
}

}  // namespace
}  // namespace dynprof
