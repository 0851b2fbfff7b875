#include "user/unwind_tables/debug_file.h"

#include <fmt/format.h>
#include <limits.h>
#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "user/target/safe_open.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMaxChecksummed = 256ULL << 20;  // of a debug file without a build-id

// The CRC of the whole file, as the debug link carries it.
bool checksum_is(const ByteSource& file, std::uint32_t wanted) {
  if (file.size() > kMaxChecksummed) return false;
  constexpr std::size_t kStep = 1 << 20;
  uLong crc = ::crc32_z(0, nullptr, 0);
  for (std::uint64_t at = 0; at < file.size(); at += kStep) {
    auto block = file.block(at, std::min<std::uint64_t>(kStep, file.size() - at));
    if (!block) return false;
    crc = ::crc32_z(crc, block->view().data(), block->view().size());
  }
  return static_cast<std::uint32_t>(crc) == wanted;
}

std::vector<std::string> debug_paths(const ElfLayout& layout, const std::string& path) {
  std::vector<std::string> paths;
  const std::string& id = layout.build_id;
  if (id.size() > 2) {
    paths.push_back(
        fmt::format("/usr/lib/debug/.build-id/{}/{}.debug", id.substr(0, 2), id.substr(2)));
  }
  const std::size_t slash = path.rfind('/');
  if (!layout.debug_link.empty() && slash != std::string::npos && path[0] == '/' &&
      path.size() < PATH_MAX && path.find('\0') == std::string::npos) {
    const std::string folder = path.substr(0, slash);
    paths.push_back(fmt::format("{}/{}", folder, layout.debug_link));
    paths.push_back(fmt::format("{}/.debug/{}", folder, layout.debug_link));
    paths.push_back(fmt::format("/usr/lib/debug{}/{}", folder, layout.debug_link));
  }
  return paths;
}

// A file found by name is used only if its build-id, or its checksum in the debug link, is right.
bool belongs(const ByteSource& file, const ElfLayout& debug, const ElfLayout& layout) {
  if (!layout.build_id.empty() && !debug.build_id.empty()) {
    return debug.build_id == layout.build_id;
  }
  return !layout.debug_link.empty() && checksum_is(file, layout.debug_link_crc);
}

}  // namespace

std::optional<DebugFile> find_debug_file(int root, const std::string& path, const ElfLayout& layout,
                                         const std::function<bool(const ElfLayout&)>& wanted,
                                         ReadBudget* budget) {
  if (root < 0) return std::nullopt;
  for (const std::string& candidate : debug_paths(layout, path)) {
    auto opened = open_below(root, candidate);
    if (!opened) continue;
    auto file = ByteSource::of_file(*std::move(opened));
    if (!file) continue;
    file->pay_from(budget);
    auto debug = read_elf_layout(*file);
    if (!debug || !wanted(*debug) || !belongs(*file, *debug, layout)) continue;
    return DebugFile{*std::move(file), *std::move(debug)};
  }
  return std::nullopt;
}

}  // namespace dynprof
