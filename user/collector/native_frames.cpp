#include "user/collector/native_frames.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "symbolizer/symbols/elf_symbols.h"
#include "symbolizer/symbols/kernel_symbols.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxOpenFiles = 512;
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
  auto mappings = read_mappings(pid_);
  if (!mappings) return nullptr;
  mappings_.clear();
  for (Mapping& mapping : *mappings)
    if (mapping.executable) mappings_.push_back(std::move(mapping));
  return search(address);
}

NativeFrames::MappedFile& NativeFrames::mapped_file(pid_t pid, const Mapping& mapping) {
  FileKey key(mapping.device_major, mapping.device_minor, mapping.inode, mapping.path);
  auto [at, added] = files_.try_emplace(std::move(key));
  MappedFile& file = at->second;
  if (added) {
    file.name = writer_.string(mapping.path.empty() ? "[anonymous]" : mapping.path);
    if (mapping.is_file() && open_files_ < kMaxOpenFiles) {
      if (auto fd = open_mapped_file(pid, mapping)) {
        file.fd = std::move(*fd);
        open_files_++;
      }
    }
  }
  return file;
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
  MappedFile& file = mapped_file(pid, *mapping);
  Frame frame;
  frame.kind = FrameKind::kNative;
  frame.object = file.name;
  frame.offset = address - mapping->start + mapping->offset;
  auto [at, added] = file.frames.try_emplace(frame.offset, 0);
  if (added) at->second = writer_.frame(frame);
  return at->second;
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

void NativeFrames::symbolize() {
  for (auto& [key, file] : files_) {
    if (!file.fd) continue;
    auto symbols = ElfSymbols::read(file.fd.get());
    if (symbols) {
      for (const auto& [offset, frame] : file.frames)
        if (auto name = symbols->find(offset)) writer_.native_name({frame, writer_.string(*name)});
    }
    file.fd.reset();
  }
  if (kernel_frames_.empty()) return;
  KernelSymbols kernel = KernelSymbols::parse(read_kallsyms());
  for (const auto& [address, frame] : kernel_frames_)
    if (auto name = kernel.find(address)) writer_.native_name({frame, writer_.string(*name)});
}

}  // namespace dynprof
