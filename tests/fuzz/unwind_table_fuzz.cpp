// Any bytes as an ELF file: building its unwind table must end, in bounded memory, and what comes out
// must be rows as bpf/unwind_format.h promises them. The first byte chooses between a whole file and
// bytes that become the .eh_frame (or .debug_frame) of a good one.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "symbolizer/base/result.h"
#include "tests/unit/unwind_fake_elf.h"
#include "user/unwind_tables/unwind_table.h"

using namespace dynprof;
using fake_elf::Bytes;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

enum Kind : std::uint8_t { kWholeFile, kEhFrame, kDebugFrame, kKinds };

Bytes example_frames(bool is_eh) {
  fake_elf::Frames frames(fake_elf::kFramesAddress, is_eh);
  const std::uint8_t encoding = is_eh ? 0x1b : 0;
  const std::string augmentation = is_eh ? "zR" : "";
  frames.cie({augmentation, fake_elf::usual_cie_program(), 1, encoding});
  if (is_eh) frames.cie({"zRS", fake_elf::usual_cie_program(), 1, encoding});
  frames.fde({fake_elf::kCodeAddress,
              0x100,
              {0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x02, 0x20, 0x0c, 7, 8, 0x41, 0x0b}});
  frames.fde({fake_elf::kCodeAddress + 0x100,
              0x80,
              {0x45, 0x0c, 10, 0, 0x10, 6, 2, 0x76, 0, 0x44, 0x0f, 3, 0x76, 0x58, 0x06}});
  frames.fde({fake_elf::kCodeAddress + 0x200,
              0x10,
              {0x0f, 4, 0x77, 0xa0, 1, 6},
              is_eh ? std::size_t{1} : std::size_t{0}});
  return frames.out;
}

fake_elf::File file_with(Bytes frames, bool is_eh) {
  fake_elf::File file;
  file.build_id = Bytes(20, 0xab);
  file.sections.push_back(
      {is_eh ? ".eh_frame" : ".debug_frame", fake_elf::kFramesAddress, std::move(frames)});
  file.sections.push_back({".plt", fake_elf::kCodeAddress + 0x1000, Bytes(48, 0x68)});
  return file;
}

Bytes example(std::uint8_t kind) {
  const Bytes frames = example_frames(kind != kDebugFrame);
  Bytes result{kind};
  fake_elf::put(result, kind == kWholeFile ? fake_elf::make(file_with(frames, true)) : frames);
  return result;
}

void check(const UnwindTable& table) {
  DYNPROF_CHECK(!table.rows.empty() && table.rows.size() <= DP_UNWIND_MAX_ROWS);
  DYNPROF_CHECK(table.rows.back().rule == DP_CFA_NONE);
  std::size_t unsupported = 0;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::uint32_t rule = table.rows[i].rule;
    DYNPROF_CHECK(i == 0 || table.rows[i - 1].pc < table.rows[i].pc);
    DYNPROF_CHECK(i == 0 || table.rows[i - 1].rule != rule);
    DYNPROF_CHECK(dp_unwind_kind(rule) < DP_CFA_KIND_COUNT);
    if (dp_unwind_kind(rule) == DP_CFA_UNSUPPORTED) {
      DYNPROF_CHECK(dp_unwind_argument(rule) < DP_UNWIND_REASON_COUNT);
      ++unsupported;
    }
    DYNPROF_CHECK(table.rule_at(table.base + table.rows[i].pc) == rule);
  }
  DYNPROF_CHECK(unsupported == table.stats.unsupported_rows());
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  // From nothing to a file is too far: start from one.
  static const std::vector<Bytes> examples = {example(kWholeFile), example(kEhFrame),
                                              example(kDebugFrame)};
  if (size < 8 || seed % 64 == 0) {
    const Bytes& chosen = examples[seed / 64 % examples.size()];
    if (max_size >= chosen.size()) {
      std::memcpy(data, chosen.data(), chosen.size());
      size = chosen.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto kind = static_cast<std::uint8_t>(data[0] % kKinds);
  Bytes image(data + 1, data + size);
  if (kind != kWholeFile) image = fake_elf::make(file_with(std::move(image), kind == kEhFrame));
  // A copy of exactly its size, so that a read beyond the end is found.
  image.shrink_to_fit();
  UnwindOptions options;
  const auto table = build_unwind_table(ByteSource::of_bytes(image), options);
  if (!table) {
    DYNPROF_CHECK(!table.error().what.empty());
    return 0;
  }
  check(*table);
  options.max_rows = 8;
  const auto small = build_unwind_table(ByteSource::of_bytes(image), options);
  if (small) {
    check(*small);
    DYNPROF_CHECK(small->rows.size() <= options.max_rows);
  }
  return 0;
}
