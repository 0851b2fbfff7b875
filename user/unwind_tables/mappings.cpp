#include "user/unwind_tables/mappings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "symbolizer/base/hash.h"
#include "user/target/awaiting_target.h"
#include "user/target/remote_memory.h"
#include "user/unwind_tables/byte_source.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMaxVdso = 64ULL << 10;  // two pages on Linux 6

std::uint64_t layout_hash(const ElfLayout& layout) {
  std::uint64_t hash = 0;
  const auto add = [&](std::uint64_t value) { hash = hash_u64(hash ^ hash_u64(value)); };
  for (const ElfSegment& segment : layout.segments) {
    for (std::uint64_t value : {segment.offset, segment.address, segment.file_size,
                                segment.memory_size, std::uint64_t{segment.executable}}) {
      add(value);
    }
  }
  for (const ElfSection* section : {&layout.eh_frame, &layout.debug_frame, &layout.plt}) {
    add(section->address);
    add(section->size);
  }
  return hash;
}

// `inode_key` where there is no build-id.
CodeFile examine(const Result<ByteSource>& source, const std::string& inode_key) {
  CodeFile file;
  file.key = inode_key;
  if (!source) {
    file.problem = source.error().what;
    return file;
  }
  auto layout = read_elf_layout(*source);
  if (!layout) {
    file.problem = layout.error().what;
    return file;
  }
  file.layout = *std::move(layout);
  if (!file.layout.build_id.empty()) {
    file.key = fmt::format("{}-{:016x}", file.layout.build_id, layout_hash(file.layout));
  }
  return file;
}

// The status of the very file that is mapped, as the kernel knows it: a server of files (FUSE, NFS) is not
// asked, it need not answer.
bool mapped_status(pid_t pid, const Mapping& mapping, struct statx& status) {
  const auto examine_path = [&status](const std::string& path) {
    return ::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &status) == 0;
  };
  const AwaitingTarget awaiting(pid);
  if (examine_path(fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.start, mapping.end)))
    return true;
  if (mapping.deleted) return false;
  return examine_path(fmt::format("/proc/{}/root{}", pid, mapping.path)) &&
         status.stx_ino == mapping.inode;
}

std::shared_ptr<const CodeFile> unreadable(std::string problem) {
  auto file = std::make_shared<CodeFile>();
  file->problem = std::move(problem);
  return file;
}

// This program's; empty: it has none.
const std::vector<std::uint8_t>& own_vdso() {
  static const std::vector<std::uint8_t> image = [] {
    std::vector<std::uint8_t> bytes;
    const auto mappings = read_mappings(::getpid());
    if (!mappings) return bytes;
    for (const Mapping& mapping : *mappings) {
      if (mapping.path != "[vdso]" || mapping.end - mapping.start > kMaxVdso) continue;
      const auto* begin = reinterpret_cast<const std::uint8_t*>(mapping.start);
      bytes.assign(begin, begin + (mapping.end - mapping.start));
    }
    return bytes;
  }();
  return image;
}

// All 64-bit programs have the same. In a process that has just begun it is not in memory yet, and reading it there
// would make the kernel map it.
bool has_our_vdso(const Mapping& mapping) {
  constexpr std::uint64_t kFirstOf64Bits = 1ULL << 32;
  return mapping.start >= kFirstOf64Bits && !own_vdso().empty() &&
         mapping.end - mapping.start == own_vdso().size();
}

}  // namespace

Result<std::vector<std::uint8_t>> read_vdso(pid_t pid, const Mapping& mapping) {
  if (has_our_vdso(mapping)) return own_vdso();
  std::vector<std::uint8_t> image(
      static_cast<std::size_t>(std::min(mapping.end - mapping.start, kMaxVdso)));
  ProcessMemory memory(pid);
  if (!memory.read(mapping.start, std::as_writable_bytes(std::span(image)))) {
    return error(fmt::format("the vdso of process {} cannot be read", pid));
  }
  return image;
}

std::shared_ptr<const CodeFile> CodeFiles::vdso_of(pid_t pid, const Mapping& mapping) {
  auto image = read_vdso(pid, mapping);
  if (!image) return unreadable(image.error().what);
  const auto seed = std::uint64_t{image->size()};
  const std::uint64_t hash =
      hash_bytes({reinterpret_cast<const char*>(image->data()), image->size()}, seed);
  CodeFile file = examine(ByteSource::of_bytes(*image), fmt::format("vdso-{:016x}", hash));
  // Programs of one kernel have one vdso; more than a few are not genuine.
  if (vdsos_.size() >= 64) vdsos_.clear();
  auto& known = vdsos_[file.key];
  if (!known) known = std::make_shared<CodeFile>(std::move(file));
  return known;
}

std::shared_ptr<const CodeFile> CodeFiles::file_of(pid_t pid, const Mapping& mapping) {
  if (mapping.path == "[vdso]") return vdso_of(pid, mapping);
  struct statx status {};
  if (!mapped_status(pid, mapping, status)) {
    return unreadable("was deleted or replaced, or may not be read");
  }
  const std::uint64_t device = ::makedev(status.stx_dev_major, status.stx_dev_minor);
  const Identity identity{device, status.stx_ino, static_cast<std::int64_t>(status.stx_size),
                          status.stx_ctime.tv_sec, std::int64_t{status.stx_ctime.tv_nsec}};
  if (auto known = files_.find(identity); known != files_.end()) return known->second;
  if (auto known = cut_.find({pid, identity}); known != cut_.end()) return known->second;
  auto opened = open_mapped_file(pid, mapping);
  Result<ByteSource> source =
      opened ? ByteSource::of_file(*std::move(opened)) : Result<ByteSource>(opened.error());
  auto reading = accounts_.begin(pid);
  if (source) source->pay_from(&reading.budget());
  auto file = std::make_shared<CodeFile>(examine(
      source, fmt::format("{:x}:{}:{}:{}", device, status.stx_ino, status.stx_size,
                          status.stx_ctime.tv_sec * 1'000'000'000 + status.stx_ctime.tv_nsec)));
  if (reading.budget().refused()) {
    if (cut_.size() >= kMaxFiles) cut_.clear();
    cut_.emplace(std::pair(pid, identity), file);
    return file;
  }
  if (files_.size() >= kMaxFiles) files_.clear();
  files_.emplace(identity, file);
  return file;
}

Result<CodeMappings> CodeFiles::read(pid_t pid) {
  ASSIGN_OR_RETURN(std::vector<Mapping> all, read_mappings(pid));
  CodeMappings result;
  for (Mapping& mapping : all) {
    if (!mapping.executable) continue;
    const bool vdso = mapping.path == "[vdso]";
    if (!vdso && !mapping.is_file()) {
      // The vsyscall page is the kernel's, and nothing is ever sampled in it.
      if (mapping.path != "[vsyscall]") ++result.anonymous;
      continue;
    }
    if (result.mappings.size() >= kMaxCodeMappings) {
      ++result.left_out;
      continue;
    }
    CodeMapping code;
    code.vdso = vdso;
    code.file = file_of(pid, mapping);
    if (code.file->problem.empty()) {
      code.bias = code.file->layout.bias(mapping.start, mapping.offset);
    }
    code.mapping = std::move(mapping);
    result.mappings.push_back(std::move(code));
  }
  return result;
}

}  // namespace dynprof
