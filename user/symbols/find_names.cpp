#include "user/symbols/find_names.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "symbolizer/base/text.h"
#include "user/symbols/object_symbols.h"
#include "user/symbols/place_reader.h"
#include "user/target/safe_open.h"
#include "user/unwind_tables/debug_file.h"
#include "user/unwind_tables/elf_layout.h"

namespace dynprof {
namespace {

using FramesOf = std::unordered_map<StringId, std::vector<FrameId>>;  // by object

std::vector<std::string> places(std::string_view path, const std::string& build_id) {
  std::vector<std::string> all;
  if (build_id.size() > 2) {
    const std::string by_id =
        fmt::format(".build-id/{}/{}", build_id.substr(0, 2), build_id.substr(2));
    all.insert(all.end(), {by_id + ".debug", by_id});
  }
  if (path.find('\0') != std::string_view::npos || path.find("..") != std::string_view::npos)
    return all;
  for (std::string_view name : {path, base_name(path)}) {
    all.push_back(fmt::format("{}.debug", name));
    all.emplace_back(name);
  }
  return all;
}

// Of files with the right build-id the first that has all symbols, else the last.
std::optional<ElfSymbols> best_symbols(int root, const std::string& path,
                                       const std::string& build_id, UniqueFd& keep,
                                       FoundNames& found) {
  std::optional<ElfSymbols> best;
  bool refused = false;
  for (const std::string& place : places(path, build_id)) {
    auto file = open_below(root, place);
    const int copy = file ? ::fcntl(file->get(), F_DUPFD_CLOEXEC, 0) : -1;
    auto source =
        copy < 0 ? Result<ByteSource>(error("not there")) : ByteSource::of_file(UniqueFd(copy));
    if (!source) continue;
    auto layout = read_elf_layout(*source);
    if (!layout || layout->build_id != build_id) {
      refused = true;
      continue;
    }
    auto symbols = ElfSymbols::read(file->get());
    if (!symbols || symbols->size() == 0) continue;
    keep = *std::move(file);
    best = *std::move(symbols);
    if (best->complete()) break;
  }
  if (!best && refused) ++found.refused;
  return best;
}

// The first file with the right build-id that has DWARF.
UniqueFd dwarf_of(int root, const std::string& path, const std::string& build_id) {
  for (const std::string& place : places(path, build_id)) {
    auto file = open_below(root, place);
    const int copy = file ? ::fcntl(file->get(), F_DUPFD_CLOEXEC, 0) : -1;
    if (copy < 0) continue;
    auto source = ByteSource::of_file(UniqueFd(copy));
    auto layout = source ? read_elf_layout(*source) : Result<ElfLayout>(source.error());
    if (layout && layout->build_id == build_id && layout->debug_info.present())
      return *std::move(file);
  }
  return UniqueFd();
}

using FramesAt = std::vector<std::pair<FrameId, std::uint64_t>>;  // and their addresses

void find_places(int dwarf, const FramesAt& frames, const std::string& path, PlaceReader& reader,
                 FoundNames& found) {
  std::vector<std::uint64_t> addresses;
  for (const auto& [frame, address] : frames) addresses.push_back(address);
  const PlacesByAddress known = reader.read(dwarf, std::move(addresses), path, 0);
  for (const auto& [frame, address] : frames) {
    const auto at = known.find(address);
    if (at == known.end()) continue;
    auto& chain = found.places.emplace_back(frame, at->second).second;
    chain.back().function.clear();  // the frame's own name
  }
}

FramesOf frames_by_object(const Tables& tables) {
  FramesOf frames;
  for (FrameId id = 1; id < tables.frames.size(); ++id)
    if (tables.frames[id].kind == FrameKind::kNative)
      frames[tables.frames[id].object].push_back(id);
  return frames;
}

}  // namespace

FoundNames find_names(const Recording& recording, const std::string& directory) {
  FoundNames found;
  const UniqueFd root(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return found;
  PlaceReader reader;
  const Tables& tables = recording.tables();
  const FramesOf frames = frames_by_object(tables);
  // Where one path was two files, an offset does not say in which.
  std::unordered_map<StringId, const ObjectFile*> objects;
  for (const ObjectFile& file : tables.object_files) {
    auto [at, added] = objects.try_emplace(file.object, &file);
    if (!added && at->second != nullptr && at->second->build_id != file.build_id)
      at->second = nullptr;
  }
  for (const auto& [object, file] : objects) {
    auto wanted = frames.find(object);
    if (file == nullptr || wanted == frames.end()) continue;
    const std::string build_id(tables.strings[file->build_id]);
    if (build_id.empty()) continue;
    UniqueFd keep;
    const std::string path(tables.strings[object]);
    auto symbols = best_symbols(root.get(), path, build_id, keep, found);
    const UniqueFd dwarf = dwarf_of(root.get(), path, build_id);
    std::vector<ImageSegment> segments;
    for (const FileSegment& part : file->segments)
      segments.push_back({part.offset, part.size, part.address});
    FramesAt frames_at;
    for (FrameId id : wanted->second)
      if (const auto address = address_at(segments, tables.frames[id].offset))
        frames_at.emplace_back(id, *address);
    if (dwarf) find_places(dwarf.get(), frames_at, path, reader, found);
    if (!symbols) continue;
    ++found.files;
    for (const auto& [id, address] : frames_at)
      if (auto name = symbols->find_address(address))
        found.names.emplace_back(id, *std::move(name));
  }
  found.problem = reader.problem();
  return found;
}

}  // namespace dynprof
