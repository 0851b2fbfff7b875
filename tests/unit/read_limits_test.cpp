// What is read of files that a target made to be long to read: up to a bound, for each process, and told.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "symbolizer/symbols/elf_symbols.h"
#include "tests/unit/unwind_fake_elf.h"
#include "user/target/read_accounts.h"
#include "user/target/read_losses.h"
#include "user/unwind_tables/table_pool.h"

namespace dynprof {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::uint64_t files_cut() { return ReadLosses::of_program().count(ReadLoss::kFileCut); }

TEST(ReadAccounts, AProcessSpendsItsOwnShare) {
  const std::uint64_t before = files_cut();
  ReadAccounts accounts(
      {{100, milliseconds(60'000)}, {150, milliseconds(60'000)}, {1000, milliseconds(60'000)}});
  EXPECT_TRUE(accounts.begin(1).budget().take(100));
  EXPECT_EQ(files_cut(), before);
  {
    auto reading = accounts.begin(1);
    EXPECT_TRUE(reading.budget().take(50));
    EXPECT_FALSE(reading.budget().take(1)) << "its share is spent";
  }
  EXPECT_EQ(files_cut(), before + 1);
  EXPECT_FALSE(accounts.begin(1).budget().take(1));
  EXPECT_TRUE(accounts.begin(2).budget().take(100)) << "another process has its own";
}

TEST(ReadAccounts, AllTogetherHaveALimitToo) {
  ReadAccounts accounts(
      {{100, milliseconds(60'000)}, {100, milliseconds(60'000)}, {250, milliseconds(60'000)}});
  EXPECT_TRUE(accounts.begin(1).budget().take(100));
  EXPECT_TRUE(accounts.begin(2).budget().take(100));
  EXPECT_FALSE(accounts.begin(3).budget().take(100));
  EXPECT_FALSE(accounts.begin(0).budget().take(1));
}

TEST(ReadAccounts, TimeIsPaidLikeBytes) {
  ReadAccounts accounts(
      {{100, milliseconds(60'000)}, {100, milliseconds(20)}, {100, milliseconds(60'000)}});
  {
    auto reading = accounts.begin(7);
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_FALSE(reading.budget().in_time());
  }
  EXPECT_EQ(accounts.begin(7).time(), milliseconds(0));
  EXPECT_EQ(accounts.begin(8).time(), milliseconds(20));
}

TEST(ReadAccounts, ASharedFileIsChargedToTheProcessWithMostTimeLeft) {
  ReadAccounts accounts(
      {{100, milliseconds(60'000)}, {100, milliseconds(60'000)}, {1000, milliseconds(60'000)}});
  {
    auto reading = accounts.begin(1);
    std::this_thread::sleep_for(milliseconds(3));
  }
  constexpr pid_t kBoth[] = {1, 2};
  EXPECT_EQ(accounts.richest(kBoth), 2);
  EXPECT_EQ(accounts.richest(std::span(kBoth).first(1)), 1);
}

TEST(ReadLosses, AProcessIsNamedOnce) {
  while (!ReadLosses::of_program().take_note().empty()) {
  }
  ReadLosses::of_program().add(ReadLoss::kFramesFull, 4711);
  ReadLosses::of_program().add(ReadLoss::kFramesFull, 4711);
  EXPECT_NE(ReadLosses::of_program().take_note().find("process 4711"), std::string::npos);
  EXPECT_EQ(ReadLosses::of_program().take_note(), "");
}

// A file of a few bytes on disk whose symbols and their names are 6 GB each.
UniqueFd file_with_endless_symbols() {
  constexpr std::uint64_t kGiB = 1ULL << 30;
  UniqueFd file(::memfd_create("sparse", MFD_CLOEXEC));
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = EM_X86_64;
  header.e_type = ET_DYN;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shoff = sizeof header;
  header.e_shnum = 1002;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  sections[1].sh_type = SHT_STRTAB;
  sections[1].sh_offset = 8 * kGiB;
  sections[1].sh_size = 6 * kGiB;
  for (std::size_t i = 2; i < sections.size(); ++i) {
    sections[i].sh_type = SHT_DYNSYM;
    sections[i].sh_link = 1;
    sections[i].sh_offset = kGiB;
    sections[i].sh_size = 6 * kGiB;
    sections[i].sh_entsize = sizeof(Elf64_Sym);
  }
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(16 * kGiB)), 0);
  EXPECT_EQ(::pwrite(file.get(), &header, sizeof header, 0), ssize_t{sizeof header});
  const auto bytes = sections.size() * sizeof sections[0];
  EXPECT_EQ(::pwrite(file.get(), sections.data(), bytes, sizeof header),
            static_cast<ssize_t>(bytes));
  return file;
}

TEST(ReadLimits, EndlessSymbols) {
  const UniqueFd file = file_with_endless_symbols();
  ReadBudget budget(8 << 20, milliseconds(10'000));
  const auto symbols = ElfSymbols::read(ImageBytes(file.get(), &budget));
  EXPECT_TRUE(budget.refused());
  ASSERT_TRUE(symbols);
  EXPECT_EQ(symbols->size(), 0u);
}

TEST(ReadLimits, NamesAreReadNoMoreWhenTheTimeIsOver) {
  UniqueFd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  ReadBudget budget(1ULL << 30, milliseconds(60'000));
  const auto symbols = ElfSymbols::read(ImageBytes(self.get(), &budget));
  ASSERT_TRUE(symbols);
  ASSERT_FALSE(symbols->parts_of("main").empty());
  while (budget.take(1 << 20)) {
  }
  EXPECT_TRUE(symbols->parts_of("main").empty());
}

// Frames of its process are all that a hostile file costs.
TEST(ReadLimits, TablesOfOneProcessEnd) {
  const fake_elf::Bytes good =
      fake_elf::make(fake_elf::file_of({{fake_elf::kCodeAddress, 0x100, {}, 0}}));
  const std::uint64_t once = 4 * good.size();
  ReadAccounts accounts({{once, milliseconds(60'000)},
                         {once, milliseconds(60'000)},
                         {100 * once, milliseconds(60'000)}});
  TablePool pool(1, nullptr, accounts);
  const std::uint64_t before = files_cut();
  std::size_t made = 0, refused = 0;
  for (std::uint64_t id = 0; id < 400; ++id) {
    TableRequest request;
    request.pid = 4711;
    request.image = good;
    ASSERT_TRUE(pool.submit(request));
    const auto result = pool.wait(milliseconds(60'000));
    ASSERT_TRUE(result);
    ++(result->table ? made : refused);
  }
  EXPECT_GT(made, 0u);
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(files_cut() - before, refused);
  TableRequest request;
  request.pid = 4712;
  request.image = good;
  ASSERT_TRUE(pool.submit(request));
  EXPECT_TRUE(pool.wait(milliseconds(60'000))->table);
}

TEST(ReadLimits, ATableThatTakesTooLong) {
  const fake_elf::Bytes good =
      fake_elf::make(fake_elf::file_of({{fake_elf::kCodeAddress, 0x100, {}, 0}}));
  ReadBudget budget(1, milliseconds(0));
  std::this_thread::sleep_for(milliseconds(2));
  UnwindOptions options;
  options.budget = &budget;
  const auto table = build_unwind_table(ByteSource::of_bytes(good), options);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().what, "takes too long to make a table of");
}

}  // namespace
}  // namespace dynprof
