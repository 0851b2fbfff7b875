#include "user/inject/code_padding.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "symbolizer/base/text.h"
#include "symbolizer/symbols/image_bytes.h"
#include "user/target/elf_tables.h"
#include "user/target/process.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLine = 64;  // of the caches
constexpr std::array<std::string_view, 8> kNeverUnloaded = {
    "libc.so", "libc-2.", "ld-linux", "ld-2.", "libm.so", "libm-2.", "libpthread", "libpython"};

bool stays(const Mapping& mapping, const std::string& interpreter) {
  if (mapping.path == interpreter) return true;
  const std::string_view name = base_name(mapping.path);
  return std::any_of(kNeverUnloaded.begin(), kNeverUnloaded.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Where the code of this mapping ends in the file; nullopt where the mapping is no whole segment.
std::optional<std::uint64_t> end_of_code(const ElfTables& tables, const Mapping& mapping) {
  for (const Elf64_Phdr& segment : tables.segments) {
    if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_X | PF_W)) != PF_X ||
        segment.p_memsz != segment.p_filesz || segment.p_filesz == 0 ||
        segment.p_offset > UINT64_MAX / 2 || segment.p_filesz > UINT64_MAX / 4)
      continue;
    const std::uint64_t begin = segment.p_offset / kPage * kPage;
    const std::uint64_t end = segment.p_offset + segment.p_filesz;
    if (mapping.offset == begin &&
        mapping.end - mapping.start == (end + kPage - 1) / kPage * kPage - begin)
      return end;
  }
  return std::nullopt;
}

}  // namespace

Result<CodePadding> CodePadding::find(pid_t pid, const std::string& interpreter,
                                      std::size_t bytes) {
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(pid));
  ProcessMemory memory(pid);
  ReadBudget budget(64ULL << 20, std::chrono::milliseconds(1000));
  for (const Mapping& mapping : mappings) {
    if (!mapping.executable || mapping.writable || !mapping.is_file() ||
        !stays(mapping, interpreter))
      continue;
    auto file = open_mapped_file(pid, mapping);
    if (!file) continue;
    const ImageBytes image(file->get());
    const auto tables = ElfTables::read(image, budget);
    if (!tables) continue;
    const auto end = end_of_code(*tables, mapping);
    if (!end) continue;
    const std::uint64_t begin = (*end + kLine - 1) / kLine * kLine;
    const std::uint64_t address = mapping.start + (begin - mapping.offset);
    if (address >= mapping.end || mapping.end - address < bytes) continue;
    std::vector<std::uint8_t> stored(bytes), there(bytes);
    const bool zeros =
        image.read(begin, stored) &&
        memory.read(address, std::as_writable_bytes(std::span(there))) &&
        std::all_of(stored.begin(), stored.end(), [](std::uint8_t byte) { return byte == 0; });
    if (!zeros || stored != there) continue;
    if (::flock(file->get(), LOCK_EX | LOCK_NB) != 0) continue;
    // Another one may have taken it, and left it, between the look and the lock.
    if (!memory.read(address, std::as_writable_bytes(std::span(there))) || stored != there)
      continue;
    ASSIGN_OR_RETURN(CodeWriter writer, CodeWriter::open(pid));
    return CodePadding(std::move(writer), std::move(*file), mapping.path, address, bytes);
  }
  return error(fmt::format("process {} has no {} unused bytes in its code", pid, bytes));
}

CodePadding::~CodePadding() {
  // An error leaves a few unused bytes changed.
  if (file_ && written_) static_cast<void>(restore());
}

Result<void> CodePadding::write(std::span<const std::byte> bytes) {
  DYNPROF_CHECK(bytes.size() <= bytes_);
  written_ = true;
  return writer_.write(address_, bytes);
}

Result<void> CodePadding::restore() {
  written_ = false;
  return writer_.write(address_, std::vector<std::byte>(bytes_));
}

}  // namespace dynprof
