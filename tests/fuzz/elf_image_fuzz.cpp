// Any bytes as an ELF file that a process has mapped: what finds an interpreter in it, its USDT probes, and
// the parts that a compiler split off a function. The first byte chooses.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/gpu/usdt_notes.h"
#include "user/symbols/split_parts.h"
#include "user/target/elf_image.h"
#include "user/target/elf_tables.h"
#include "user/unwind_tables/elf_layout.h"

using namespace dynprof;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

UniqueFd as_file(std::span<const std::uint8_t> bytes) {
  UniqueFd file(::memfd_create("elf", MFD_CLOEXEC));
  if (file && ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    file.reset();
  return file;
}

void check_image(std::span<const std::uint8_t> bytes) {
  ReadBudget budget = budget_for_one_file();
  auto image = ElfImage::open(as_file(bytes), "fuzzed", budget);
  if (!image) {
    DYNPROF_CHECK(!image.error().what.empty());
    return;
  }
  static constexpr std::string_view kNames[] = {"_PyRuntime", "Py_Version", "PyCode_Type", ""};
  DYNPROF_CHECK(image->find_symbols(kNames, budget).size() == std::size(kNames));
  DYNPROF_CHECK(image->find_symbols(kNames, budget, true).size() == std::size(kNames));
  std::vector<Mapping> mappings;
  for (const ElfImage::Segment& segment : image->segments()) {
    if (mappings.size() == 16) break;
    Mapping& mapping = mappings.emplace_back();
    mapping.start = segment.address;
    mapping.end = segment.address + segment.memory_size;
    mapping.offset = segment.offset;
  }
  (void)image->load_bias(mappings);
}

void check_layout(std::span<const std::uint8_t> bytes) {
  const auto layout = read_elf_layout(ByteSource::of_bytes(bytes));
  if (!layout) {
    DYNPROF_CHECK(!layout.error().what.empty());
    return;
  }
  DYNPROF_CHECK(layout->debug_link.find('/') == std::string::npos);
  if (const auto base = layout->code_base()) DYNPROF_CHECK(layout->code_end() >= *base);
  for (const ElfSegment& segment : layout->segments)
    (void)layout->bias(0x7f0000000000, segment.offset);
}

void check_parts(std::span<const std::uint8_t> bytes) {
  const ElfSymbols::Range whole{bytes.size() / 4, bytes.size() / 2};
  for (const ElfSymbols::Range& part : split_parts(ByteSource::of_bytes(bytes), whole))
    DYNPROF_CHECK(part.begin < part.end);
}

void check_probes(std::span<const std::uint8_t> bytes) {
  const UniqueFd file = as_file(bytes);
  if (!file) return;
  auto found = read_usdt_notes(file.get());
  if (!found) return;
  for (const UsdtNote& note : *found)
    DYNPROF_CHECK(note.provider.size() + note.name.size() <= bytes.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::span(data, size).subspan(1);
  switch (data[0] % 4) {
    case 0:
      check_image(bytes);
      break;
    case 1:
      check_layout(bytes);
      break;
    case 2:
      check_parts(bytes);
      break;
    default:
      check_probes(bytes);
  }
  return 0;
}
