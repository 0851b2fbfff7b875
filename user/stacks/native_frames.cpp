#include "user/stacks/native_frames.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>

#include "symbolizer/symbols/kernel_symbols.h"
#include "user/symbols/object_symbols.h"
#include "user/symbols/perf_map.h"
#include "user/target/read_losses.h"
#include "user/target/safe_open.h"
#include "user/unwind_tables/mappings.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxOpenFiles = 512;
constexpr std::size_t kMaxOpenFilesOfProcess = kMaxOpenFiles / 2;
constexpr std::size_t kMaxPayers = 8;
constexpr std::size_t kMaxRoots = 64;
// A day of a training script has some 100,000.
constexpr std::size_t kMaxFramesOfObject = 500'000;
constexpr std::size_t kMaxFramesOfProcess = 1'000'000;
constexpr std::size_t kMaxFrames = 4'000'000;
// A thread that runs in memory without a mapping we know would have us read its maps every time.
constexpr std::uint64_t kReadAgainAfterNs = 200'000'000;

std::string read_kallsyms() {
  std::string text;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/kallsyms", "re"),
                                                       std::fclose);
  if (!file) return text;
  constexpr std::size_t kLimit = 256 << 20;
  char buffer[1 << 16];
  while (text.size() < kLimit) {
    std::size_t n = std::fread(buffer, 1, sizeof buffer, file.get());
    if (n == 0) break;
    text.append(buffer, n);
  }
  return text;
}

}  // namespace

const Mapping* AddressSpace::search(std::uint64_t address) const {
  auto after = std::upper_bound(
      mappings_.begin(), mappings_.end(), address,
      [](std::uint64_t value, const Mapping& mapping) { return value < mapping.start; });
  if (after == mappings_.begin()) return nullptr;
  const Mapping& mapping = *(after - 1);
  return address < mapping.end ? &mapping : nullptr;
}

const Mapping* AddressSpace::find(std::uint64_t address, std::uint64_t now_ns) {
  if (const Mapping* mapping = search(address)) return mapping;
  if (!mappings_.empty() && now_ns < read_ns_ + kReadAgainAfterNs) return nullptr;
  read_ns_ = now_ns;
  std::vector<Mapping> executable;
  // A child that was forked may by now be another program; its samples before that are of its parent's.
  const bool inherited = kept_ && kept_->pid != pid_;
  if (!inherited)
    if (auto mappings = read_mappings(pid_))
      for (Mapping& mapping : *mappings)
        if (mapping.executable) executable.push_back(std::move(mapping));
  if (executable.empty() && kept_) executable = kept_->mappings();
  mappings_ = std::move(executable);
  return search(address);
}

std::uint64_t AddressSpace::next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// Of each file system root one descriptor: it is still there when the process is not.
int NativeFrames::root_of(pid_t pid) {
  UniqueFd root = open_root_of(pid);
  struct stat status {};
  if (!root || ::fstat(root.get(), &status) != 0) return -1;
  const RootKey key(status.st_dev, status.st_ino);
  auto known = roots_.find(key);
  if (known != roots_.end()) return known->second.get();
  if (roots_.size() >= kMaxRoots) return -1;
  return roots_.emplace(key, std::move(root)).first->second.get();
}

void NativeFrames::describe(const MappedFile& file) {
  const int copy = file.fd ? ::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0) : -1;
  if (file.fd && copy < 0) return;
  auto source = file.fd ? ByteSource::of_file(UniqueFd(copy))
                        : Result<ByteSource>(ByteSource::of_bytes(file.image));
  auto reading = header_accounts_.begin(file.pids.front());
  if (source) source->pay_from(&reading.budget());
  auto layout = source ? read_elf_layout(*source) : Result<ElfLayout>(source.error());
  if (!layout) return;
  ObjectFile described;
  described.object = file.name;
  described.build_id = writer_.string(layout->build_id);
  for (const ElfSegment& segment : layout->segments) {
    if (!segment.executable || described.segments.size() >= kMaxFileSegments) continue;
    described.segments.push_back({segment.offset, segment.file_size, segment.address});
  }
  writer_.object_file(described);
}

void NativeFrames::open(pid_t pid, const Mapping& mapping, MappedFile& file) {
  if (mapping.path == "[vdso]") {
    if (auto image = read_vdso(pid, mapping)) file.image = *std::move(image);
  } else if (mapping.is_file()) {
    std::size_t& of_process = files_of_[pid];
    if (open_files_ >= kMaxOpenFiles || of_process >= kMaxOpenFilesOfProcess) {
      ReadLosses::of_program().add(ReadLoss::kFileCut, pid);
    } else if (auto fd = open_mapped_file(pid, mapping)) {
      file.fd = std::move(*fd);
      file.root = root_of(pid);
      open_files_++;
      of_process++;
    }
  }
  if (file.fd || !file.image.empty()) describe(file);
}

NativeFrames::MappedFile& NativeFrames::mapped_file(pid_t pid, const Mapping& mapping) {
  FileKey key(mapping.device_major, mapping.device_minor, mapping.inode, mapping.path);
  auto [at, added] = files_.try_emplace(std::move(key));
  MappedFile& file = at->second;
  if (added) {
    file.pids = {pid};
    file.name = writer_.string(mapping.path);
    open(pid, mapping, file);
  } else if (file.pids.back() != pid && file.pids.size() < kMaxPayers &&
             std::find(file.pids.begin(), file.pids.end(), pid) == file.pids.end()) {
    file.pids.push_back(pid);
  }
  return file;
}

FrameId NativeFrames::frame_of(pid_t pid, StringId object, std::uint64_t offset,
                               std::unordered_map<std::uint64_t, FrameId>& known) {
  if (auto at = known.find(offset); at != known.end()) return at->second;
  std::size_t& of_process = frames_of_[pid];
  if (known.size() >= kMaxFramesOfObject || of_process >= kMaxFramesOfProcess ||
      frames_ >= kMaxFrames) {
    ReadLosses::of_program().add(ReadLoss::kFramesFull, pid);
    offset = 0;
  }
  auto [at, added] = known.try_emplace(offset, 0);
  if (added) {
    ++frames_;
    ++of_process;
    Frame frame;
    frame.kind = FrameKind::kNative;
    frame.object = object;
    frame.offset = offset;
    at->second = writer_.frame(frame);
  }
  return at->second;
}

// Code generated at run time is identified by its address, within its own process.
FrameId NativeFrames::runtime_code_frame(pid_t pid, std::uint64_t space, std::uint64_t address) {
  auto [at, added] = runtime_code_.try_emplace(space);
  RuntimeCode& made = at->second;
  if (added) {
    made.pid = pid;
    if (open_files_ < kMaxOpenFiles) made.perf_map = open_perf_map(pid);
    if (made.perf_map) open_files_++;
    made.name = writer_.string(made.perf_map ? fmt::format("perf-{}.map", pid) : "[jit]");
  }
  return frame_of(pid, made.name, address, made.frames);
}

FrameId NativeFrames::user_frame(pid_t pid, AddressSpace& space, std::uint64_t address,
                                 std::uint64_t now_ns) {
  const Mapping* mapping = space.find(address, now_ns);
  if (!mapping) {
    if (!unmapped_) {
      Frame frame;
      frame.kind = FrameKind::kNative;
      frame.object = writer_.string("[unmapped]");
      unmapped_ = writer_.frame(frame);
    }
    return unmapped_;
  }
  if (mapping->path.empty()) return runtime_code_frame(pid, space.id(), address);
  MappedFile& file = mapped_file(pid, *mapping);
  return frame_of(pid, file.name, address - mapping->start + mapping->offset, file.frames);
}

FrameId NativeFrames::kernel_frame(std::uint64_t address) {
  auto [at, added] = kernel_frames_.try_emplace(address, 0);
  if (added) {
    Frame frame;
    frame.kind = FrameKind::kKernel;
    frame.object = writer_.string("[kernel]");
    frame.offset = address;
    at->second = writer_.frame(frame);
  }
  return at->second;
}

std::unordered_map<FrameId, std::string> NativeFrames::place_file(const std::string& path,
                                                                  MappedFile& file,
                                                                  PlaceReader& reader, pid_t payer,
                                                                  ReadBudget& budget) {
  std::unordered_map<FrameId, std::string> names;
  const UniqueFd dwarf =
      file.fd ? find_dwarf_file(file.fd.get(), file.root, path, budget) : UniqueFd();
  if (!dwarf) return names;
  auto own = ElfSymbols::read(ImageBytes(file.fd.get(), &budget));
  if (!own) return names;
  std::vector<std::uint64_t> addresses;
  std::unordered_multimap<std::uint64_t, FrameId> frames;
  for (const auto& [offset, frame] : file.frames) {
    const auto address = address_at(own->segments(), offset);
    if (!address) continue;
    addresses.push_back(*address);
    frames.emplace(*address, frame);
  }
  for (const auto& [address, chain] : reader.read(dwarf.get(), std::move(addresses), path, payer)) {
    const auto [first, last] = frames.equal_range(address);
    for (auto at = first; at != last; ++at) {
      SourcePlaces row{at->second, {}};
      for (const NamedPlace& place : chain)
        row.chain.push_back({writer_.string(place.function), writer_.string(place.file), place.line,
                             place.declared});
      row.chain.back().function = 0;
      writer_.source_places(row);
      names[at->second] = chain.back().function;
    }
  }
  return names;
}

void NativeFrames::symbolize_file(const std::string& path, MappedFile& file, PlaceReader& reader) {
  const pid_t payer = symbol_accounts_.richest(file.pids);
  std::unordered_map<FrameId, std::string> from_dwarf;
  {
    auto reading = symbol_accounts_.begin(payer);
    from_dwarf = place_file(path, file, reader, payer, reading.budget());
  }
  auto write_name = [&](FrameId frame, std::optional<std::string> name) {
    const auto known = from_dwarf.find(frame);
    if (!name && known != from_dwarf.end()) name = known->second;
    if (name && !name->empty()) writer_.native_name({frame, writer_.string(*name)});
  };
  auto source = file.fd ? ByteSource::of_file(std::move(file.fd))
                        : Result<ByteSource>(ByteSource::of_bytes(file.image));
  if (!source) return;
  auto reading = symbol_accounts_.begin(payer);
  source->pay_from(&reading.budget());
  auto symbols = ObjectSymbols::read(*std::move(source), file.root, path);
  for (const auto& [offset, frame] : file.frames)
    write_name(frame, symbols ? symbols->find(offset) : std::nullopt);
}

std::string NativeFrames::symbolize(const std::function<void(const std::string&)>& naming) {
  PlaceReader reader;
  for (auto& [key, file] : files_) {
    if (!file.fd && file.image.empty()) continue;
    if (naming) naming(std::get<3>(key));
    symbolize_file(std::get<3>(key), file, reader);
  }
  for (auto& [space, made] : runtime_code_) {
    if (!made.perf_map) continue;
    auto reading = symbol_accounts_.begin(made.pid);
    if (!reading.budget().take(PerfMap::kMaxBytes)) continue;
    const PerfMap names = PerfMap::read(made.perf_map.get());
    for (const auto& [address, frame] : made.frames)
      if (auto name = names.find(address)) writer_.native_name({frame, writer_.string(*name)});
  }
  if (kernel_frames_.empty()) return reader.problem();
  KernelSymbols kernel = KernelSymbols::parse(read_kallsyms());
  for (const auto& [address, frame] : kernel_frames_)
    if (auto name = kernel.find(address)) writer_.native_name({frame, writer_.string(*name)});
  return reader.problem();
}

}  // namespace dynprof
