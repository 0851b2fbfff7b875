// Whole files: which FDEs become rows, and what hostile or unusual files come to.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/unwind_fake_elf.h"

namespace dynprof {
namespace {

using fake_elf::Bytes;
using fake_elf::frame_of;
using fake_elf::kCodeAddress;
using fake_elf::kCodeSize;
using fake_elf::kFramesAddress;
using fake_elf::kind_at;
using fake_elf::make;
using fake_elf::offset_at;
using fake_elf::table_of;

std::uint32_t skipped(const UnwindTable& table, CfiSkip why) {
  return table.stats.skipped[static_cast<std::size_t>(why)];
}

void expect_well_formed(const UnwindTable& table) {
  ASSERT_FALSE(table.rows.empty());
  EXPECT_EQ(table.rows.back().rule, std::uint32_t{DP_CFA_NONE});
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    EXPECT_LT(table.rows[i - 1].pc, table.rows[i].pc);
    EXPECT_NE(table.rows[i - 1].rule, table.rows[i].rule);
  }
}

TEST(UnwindTable, GapsHaveNoRule) {
  const auto table =
      table_of(make(fake_elf::file_of({{kCodeAddress + 0x100, 0x20, frame_of(16), 0},
                                       {kCodeAddress + 0x200, 0x20, frame_of(24), 0}})));
  ASSERT_TRUE(table) << table.error().what;
  expect_well_formed(*table);
  EXPECT_EQ(table->base, kCodeAddress);
  EXPECT_EQ(table->rows.size(), 4u);
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x11f), 16);
  EXPECT_EQ(kind_at(*table, kCodeAddress + 0x120), std::uint32_t{DP_CFA_NONE});
  EXPECT_EQ(kind_at(*table, kCodeAddress + 0x1ff), std::uint32_t{DP_CFA_NONE});
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x200), 24);
  EXPECT_EQ(kind_at(*table, 0), std::uint32_t{DP_CFA_NONE});
  EXPECT_EQ(kind_at(*table, ~std::uint64_t{0}), std::uint32_t{DP_CFA_NONE});
}

TEST(UnwindTable, PaddingBeforeAnAlignedFunctionCostsNoRow) {
  const auto table =
      table_of(make(fake_elf::file_of({{kCodeAddress + 0x100, 0x11, frame_of(16), 0},
                                       {kCodeAddress + 0x120, 0x10, frame_of(24), 0},
                                       {kCodeAddress + 0x138, 0x8, frame_of(32), 0}})));
  ASSERT_TRUE(table);
  expect_well_formed(*table);
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x11f), 16);
  // The third begins at no multiple of 16: what lies before it may be code.
  EXPECT_EQ(kind_at(*table, kCodeAddress + 0x130), std::uint32_t{DP_CFA_NONE});
  EXPECT_EQ(table->rows.size(), 5u);
}

TEST(UnwindTable, EqualNeighboursAreOneRow) {
  const auto table = table_of(make(fake_elf::file_of({{kCodeAddress + 0x110, 0x10, {}, 0},
                                                      {kCodeAddress + 0x100, 0x10, {}, 0},
                                                      {kCodeAddress + 0x120, 0x10, {}, 0}})));
  ASSERT_TRUE(table);
  EXPECT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->stats.fdes, 3u);
}

TEST(UnwindTable, OverlapsAndDuplicates) {
  const auto table =
      table_of(make(fake_elf::file_of({{kCodeAddress + 0x100, 0x100, frame_of(16), 0},
                                       {kCodeAddress + 0x180, 0x100, frame_of(24), 0},
                                       {kCodeAddress + 0x180, 0x10, frame_of(32), 0}})));
  ASSERT_TRUE(table);
  expect_well_formed(*table);
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x17f), 16);
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x180), 24);
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x27f), 24);
  EXPECT_EQ(skipped(*table, CfiSkip::kOverlap), 1u);
}

TEST(UnwindTable, FdesOutsideOfCodeAreLeftOut) {
  const auto table = table_of(make(fake_elf::file_of({{0, 0x10, {}, 0},
                                                      {kCodeAddress + kCodeSize - 8, 0x10, {}, 0},
                                                      {kCodeAddress, 0, {}, 0},
                                                      {kCodeAddress + kCodeSize - 8, 8, {}, 0}})));
  ASSERT_TRUE(table);
  EXPECT_EQ(skipped(*table, CfiSkip::kNotCode), 3u);
  EXPECT_EQ(table->stats.fdes, 1u);
  EXPECT_EQ(kind_at(*table, kCodeAddress + kCodeSize - 1), std::uint32_t{DP_CFA_RSP});
  EXPECT_EQ(kind_at(*table, kCodeAddress + kCodeSize), std::uint32_t{DP_CFA_NONE});
}

TEST(UnwindTable, EveryEncodingOfAddresses) {
  for (std::uint8_t encoding : {0x00, 0x04, 0x0c}) {
    const auto table =
        table_of(make(fake_elf::file_of({{kCodeAddress + 0x100, 0x10, {}, 0}},
                                        {"zR", fake_elf::usual_cie_program(), 1, encoding})));
    ASSERT_TRUE(table) << int{encoding};
    EXPECT_EQ(kind_at(*table, kCodeAddress + 0x100), std::uint32_t{DP_CFA_RSP});
  }
  // Relative to the global offset table, or behind a pointer: not known to us.
  for (std::uint8_t encoding : {0x30, 0x80, 0x0f}) {
    EXPECT_FALSE(table_of(make(fake_elf::file_of(
        {{kCodeAddress, 0x10, {}, 0}}, {"zR", fake_elf::usual_cie_program(), 1, encoding}))));
  }
}

TEST(UnwindTable, FixedAddressesAndBias) {
  fake_elf::File file = fake_elf::file_of({{0x401100, 0x10, frame_of(16), 0}});
  file.fixed = true;
  file.code = 0x401000;
  const Bytes image = make(file);
  const auto table = table_of(image);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->base, 0x401000u);
  EXPECT_EQ(offset_at(*table, 0x401100), 16);
  const auto layout = read_elf_layout(ByteSource::of_bytes(image));
  ASSERT_TRUE(layout);
  EXPECT_TRUE(layout->fixed_address);
  EXPECT_EQ(layout->bias(0x401000, 0), 0u);
  EXPECT_EQ(layout->bias(0x7f0000405000, 0x4000), 0x7f0000000000u) << "a mapping that was split";
  EXPECT_EQ(layout->bias(0x7f0000405000, kCodeSize), std::nullopt);
}

TEST(UnwindTable, DebugFrameFillsWhatEhFrameLeaves) {
  for (std::uint8_t version : {1, 3, 4}) {
    fake_elf::File file = fake_elf::file_of({{kCodeAddress + 0x100, 0x10, frame_of(16), 0}});
    fake_elf::Frames debug(0, false);
    debug.cie({"", fake_elf::usual_cie_program(), version, 0});
    debug.fde({kCodeAddress + 0x100, 0x10, frame_of(24), 0});
    debug.fde({kCodeAddress + 0x110, 0x10, frame_of(32), 0});
    file.sections.push_back({".debug_frame", 0, debug.out});
    const auto table = table_of(make(file));
    ASSERT_TRUE(table);
    EXPECT_EQ(offset_at(*table, kCodeAddress + 0x100), 16) << ".eh_frame is what runs";
    EXPECT_EQ(offset_at(*table, kCodeAddress + 0x110), 32) << int{version};
  }
}

TEST(UnwindTable, WithoutSectionHeaders) {
  fake_elf::File file = fake_elf::file_of({{kCodeAddress + 0x100, 0x10, frame_of(16), 0}});
  // A terminator and something else behind it.
  fake_elf::put(file.sections[0].content, Bytes(4, 0));
  fake_elf::put(file.sections[0].content, Bytes(64, 0xee));
  file.section_headers = false;
  EXPECT_FALSE(table_of(make(file)));
  file.frame_header = true;
  const auto table = table_of(make(file));
  ASSERT_TRUE(table) << table.error().what;
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x100), 16);
  EXPECT_EQ(skipped(*table, CfiSkip::kDamaged), 0u);
}

TEST(UnwindTable, TerminatorsInTheMiddleDoNotEndASection) {
  fake_elf::Frames frames(kFramesAddress);
  frames.cie({});
  frames.fde({kCodeAddress, 0x10, frame_of(16), 0});
  fake_elf::put(frames.out, Bytes(4, 0));
  frames.fde({kCodeAddress + 0x10, 0x10, frame_of(24), 0});
  fake_elf::File file;
  file.sections.push_back({".eh_frame", kFramesAddress, frames.out});
  const auto table = table_of(make(file));
  ASSERT_TRUE(table);
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x10), 24);
}

TEST(UnwindTable, LinkageTablesWithoutADescription) {
  struct Case {
    Bytes entry;
    std::uint32_t threshold;
  };
  const std::uint64_t plt = kCodeAddress + 0x800;
  for (const Case& each : {Case{{0xff, 0x25, 0, 0, 0, 0, 0x68}, 11},
                           Case{{0xf3, 0x0f, 0x1e, 0xfa, 0x68}, 9}, Case{{0x68, 0, 0, 0, 0}, 5}}) {
    fake_elf::File file = fake_elf::file_of({{kCodeAddress, 0x10, frame_of(16), 0}});
    Bytes content(48, 0);
    std::memcpy(content.data() + 16, each.entry.data(), each.entry.size());
    file.sections.push_back({".plt", plt, content});
    file.sections.push_back({".plt.got", plt + 0x100, Bytes(16, 0)});
    const auto table = table_of(make(file));
    ASSERT_TRUE(table);
    EXPECT_EQ(table->stats.synthesized, 2u);
    EXPECT_EQ(offset_at(*table, plt), 16);
    EXPECT_EQ(offset_at(*table, plt + 6), 24);
    EXPECT_EQ(kind_at(*table, plt + 16), std::uint32_t{DP_CFA_PLT});
    EXPECT_EQ(dp_unwind_argument(table->rule_at(plt + 47)), each.threshold);
    EXPECT_EQ(kind_at(*table, plt + 48), std::uint32_t{DP_CFA_NONE});
    EXPECT_EQ(offset_at(*table, plt + 0x100), 8);
  }
}

TEST(UnwindTable, ADescribedLinkageTableIsLeftAlone) {
  fake_elf::File file = fake_elf::file_of({{kCodeAddress, 0x100, frame_of(40), 0}});
  file.sections.push_back({".plt", kCodeAddress + 0x20, Bytes(32, 0)});
  const auto table = table_of(make(file));
  ASSERT_TRUE(table);
  EXPECT_EQ(table->stats.synthesized, 0u);
  EXPECT_EQ(offset_at(*table, kCodeAddress + 0x20), 40);
}

TEST(UnwindTable, TooManyRowsAreCut) {
  std::vector<fake_elf::Fde> fdes;
  for (std::uint64_t i = 0; i < 100; ++i) {
    fdes.push_back({kCodeAddress + 0x100 + 0x40 * i, 0x20, frame_of(16), 0});
  }
  UnwindOptions options;
  options.max_rows = 50;
  const auto table = table_of(make(fake_elf::file_of(fdes)), options);
  ASSERT_TRUE(table);
  expect_well_formed(*table);
  EXPECT_LE(table->rows.size(), 50u);
  EXPECT_GE(table->rows.size(), 40u);
  EXPECT_EQ(offset_at(*table, fdes[20].begin), 16);
  EXPECT_EQ(table->rule_at(fdes[99].begin) & 0xfffffu,
            std::uint32_t{DP_CFA_UNSUPPORTED} | std::uint32_t{DP_UNWIND_TABLE_LIMIT} << 4);
  // Within one long program, too.
  Bytes steps;
  for (int i = 0; i < 50; ++i) fake_elf::put(steps, {0x41, 0x0e, 16, 0x41, 0x0e, 24});
  const auto one = table_of(make(fake_elf::file_of({{kCodeAddress, 0x200, steps, 0}})), options);
  ASSERT_TRUE(one);
  expect_well_formed(*one);
  EXPECT_LE(one->rows.size(), 50u);
  EXPECT_EQ(one->stats.unsupported[DP_UNWIND_TABLE_LIMIT], 1u);
}

TEST(UnwindTable, CancelledBuildsEnd) {
  const std::atomic<bool> cancelled{true};
  UnwindOptions options;
  options.cancelled = &cancelled;
  const auto table = table_of(make(fake_elf::file_of({{kCodeAddress, 0x10, {}, 0}})), options);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().what, "cancelled");
}

TEST(UnwindTable, DamagedEntries) {
  fake_elf::File file = fake_elf::file_of({{kCodeAddress, 0x10, frame_of(16), 0}});
  Bytes& frames = file.sections[0].content;
  const Bytes good = frames;
  fake_elf::put_value<std::uint32_t>(frames, 0x7fffffff);  // longer than the section
  fake_elf::put(frames, Bytes(16, 1));
  auto table = table_of(make(file));
  ASSERT_TRUE(table);
  EXPECT_EQ(skipped(*table, CfiSkip::kDamaged), 1u);
  EXPECT_EQ(table->stats.fdes, 1u);

  frames = good;
  fake_elf::put(frames, {8, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4});  // its CIE is nowhere
  table = table_of(make(file));
  ASSERT_TRUE(table);
  EXPECT_EQ(skipped(*table, CfiSkip::kNoCie), 1u);

  frames = good;
  fake_elf::put(frames, {2, 0, 0, 0, 1, 2});  // shorter than its head
  table = table_of(make(file));
  ASSERT_TRUE(table);
  EXPECT_EQ(skipped(*table, CfiSkip::kDamaged), 1u);
}

TEST(UnwindTable, EveryTruncationIsRefusedOrCut) {
  fake_elf::File file = fake_elf::file_of(
      {{kCodeAddress, 0x10, frame_of(16), 0}, {kCodeAddress + 0x20, 0x10, frame_of(24), 0}});
  file.build_id = Bytes(20, 0xab);
  file.sections.push_back({".plt", kCodeAddress + 0x800, Bytes(48, 0)});
  const Bytes image = make(file);
  ASSERT_TRUE(table_of(image));
  for (std::size_t size = 0; size < image.size(); ++size) {
    const Bytes cut(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    const auto table = table_of(cut);
    if (table) expect_well_formed(*table);
    EXPECT_TRUE(table || !table.error().what.empty());
  }
}

TEST(UnwindTable, EveryByteChanged) {
  fake_elf::File file = fake_elf::file_of(
      {{kCodeAddress, 0x10, frame_of(16), 0}, {kCodeAddress + 0x20, 0x10, {0x41, 0x0a, 0x0b}, 0}});
  file.build_id = Bytes(20, 0xab);
  const Bytes image = make(file);
  for (std::size_t at = 0; at < image.size(); ++at) {
    for (int change : {0xff, 0x80, 0x01}) {
      Bytes other = image;
      other[at] = static_cast<std::uint8_t>(other[at] ^ change);
      const auto table = table_of(other);
      if (table) expect_well_formed(*table);
    }
  }
}

TEST(UnwindTable, AnEntryWithoutADescriptionIsOutermost) {
  Bytes image =
      make(fake_elf::file_of({{kCodeAddress, 0x10, {}, 0}, {kCodeAddress + 0x200, 0x10, {}, 0}}));
  const auto with_entry = [&](std::uint64_t entry) {
    std::memcpy(image.data() + offsetof(Elf64_Ehdr, e_entry), &entry, sizeof entry);
    return table_of(image);
  };
  const std::uint64_t gap = kCodeAddress + 0x80;
  const auto table = with_entry(gap);
  ASSERT_TRUE(table);
  expect_well_formed(*table);
  EXPECT_EQ(table->rule_at(gap - 1), DP_CFA_NONE);
  EXPECT_EQ(table->rule_at(gap), DP_CFA_OUTERMOST);
  EXPECT_EQ(table->rule_at(gap + 63), DP_CFA_OUTERMOST);
  EXPECT_EQ(table->rule_at(gap + 64), DP_CFA_NONE);
  EXPECT_EQ(dp_unwind_kind(table->rule_at(kCodeAddress + 0x200)), DP_CFA_RSP);
  // At the very begin and near the end of the gap.
  EXPECT_EQ(with_entry(kCodeAddress + 0x10)->rule_at(kCodeAddress + 0x10), DP_CFA_OUTERMOST);
  const auto late = with_entry(kCodeAddress + 0x1f0);
  EXPECT_EQ(late->rule_at(kCodeAddress + 0x1ff), DP_CFA_OUTERMOST);
  EXPECT_EQ(dp_unwind_kind(late->rule_at(kCodeAddress + 0x200)), DP_CFA_RSP);
  // Described code is what its description says, and an entry outside of all code is nothing.
  EXPECT_EQ(dp_unwind_kind(with_entry(kCodeAddress)->rule_at(kCodeAddress)), DP_CFA_RSP);
  EXPECT_TRUE(with_entry(~0ULL));
}

TEST(UnwindTable, OtherFilesAreRefused) {
  Bytes image = make(fake_elf::file_of({{kCodeAddress, 0x10, {}, 0}}));
  EXPECT_FALSE(table_of({}));
  EXPECT_FALSE(table_of(Bytes(4096, 0)));
  Bytes other = image;
  other[EI_CLASS] = ELFCLASS32;
  EXPECT_FALSE(table_of(other));
  other = image;
  other[offsetof(Elf64_Ehdr, e_machine)] = 0;
  EXPECT_FALSE(table_of(other));
  other = image;
  other[offsetof(Elf64_Ehdr, e_type)] = ET_REL;
  EXPECT_FALSE(table_of(other));
  fake_elf::File empty;
  EXPECT_EQ(table_of(make(empty)).error().what, "has no unwind information");
}

TEST(UnwindTable, AFileTruncatedAfterItWasOpened) {
  const Bytes image = make(fake_elf::file_of({{kCodeAddress, 0x10, {}, 0}}));
  char path[] = "/tmp/unwind_table_XXXXXX";
  UniqueFd file(::mkstemp(path));
  ASSERT_TRUE(file);
  ASSERT_EQ(::write(file.get(), image.data(), image.size()), static_cast<ssize_t>(image.size()));
  auto source = ByteSource::of_file(UniqueFd(::open(path, O_RDONLY)));
  ASSERT_TRUE(source);
  EXPECT_TRUE(build_unwind_table(*source));
  ASSERT_EQ(::ftruncate(file.get(), 0x300), 0);
  EXPECT_FALSE(build_unwind_table(*source));
  ::unlink(path);
}

}  // namespace
}  // namespace dynprof
