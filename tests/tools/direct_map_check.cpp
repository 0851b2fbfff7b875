// Whether memory of each kind is read where the kernel maps it as it is, or left to the kernel's helper
// where it must be (bpf/user_memory.bpf.h): one line each, `read KIND` or `left KIND`. Exit 77: this
// kernel offers no such way.
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "bpf/limits.h"
#include "direct_map.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/kernel/direct_map.h"

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = 2 << 20;

bool kernel_offers_it() {
  btf* types = btf__load_vmlinux_btf();
  const bool offered = types && btf__find_by_name_kind(types, "bpf_rdonly_cast", BTF_KIND_FUNC) > 0;
  btf__free(types);
  return offered;
}

class Reader {
 public:
  explicit Reader(const dynprof::DirectMap& map) : map_(map), skeleton_(loaded()) {}

  // Whether both words are read in place, and come out right.
  bool reads(std::uint64_t first, std::uint64_t second, std::uint64_t a, std::uint64_t b) {
    if (!skeleton_) return false;
    auto* data = skeleton_->bss;
    data->physical_mask = map_.physical_mask;
    data->address[0] = first;
    data->address[1] = second;
    data->expected[0] = a;
    data->expected[1] = b;
    data->first = at_;
    return dynprof::run_once(skeleton_->progs.find_direct_map) && data->base == map_.base;
  }
  bool reads(const std::uint64_t* first, const std::uint64_t* second) {
    return reads(reinterpret_cast<std::uint64_t>(first), reinterpret_cast<std::uint64_t>(second),
                 *first, *second);
  }
  // Finds which run tries the right place: false if none does.
  bool find(const std::uint64_t* first, const std::uint64_t* second) {
    for (at_ = 0; at_ < 16384; at_ += DP_PLACES_TRIED)
      if (reads(first, second)) return true;
    return false;
  }

 private:
  static dynprof::Skeleton<direct_map_bpf> loaded() {
    auto skeleton = dynprof::open_object<direct_map_bpf>("direct-map");
    if (!skeleton || !dynprof::load_object("direct-map", **skeleton)) return nullptr;
    return std::move(*skeleton);
  }

  dynprof::DirectMap map_;
  dynprof::Skeleton<direct_map_bpf> skeleton_;
  std::uint64_t at_ = 0;
};

std::uint64_t* fill(void* memory, std::size_t bytes) {
  auto* words = static_cast<std::uint64_t*>(memory);
  for (std::size_t i = 0; i < bytes / 8; ++i)
    words[i] = (reinterpret_cast<std::uint64_t>(memory) + i) * 0x9e3779b97f4a7c15;
  return words;
}

std::uint64_t* anonymous(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return fill(memory, bytes);
}

// Of a large page; null: the kernel gives none now.
std::uint64_t* large_page() {
  auto* memory = static_cast<char*>(
      mmap(nullptr, 2 * kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  char* aligned = memory + (kLarge - reinterpret_cast<std::uint64_t>(memory) % kLarge) % kLarge;
  madvise(aligned, kLarge, MADV_HUGEPAGE);
  std::uint64_t* words = fill(aligned, kLarge);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool ours = false;
  while (std::getline(maps, line)) {
    unsigned long long begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
      ours = begin <= reinterpret_cast<std::uint64_t>(aligned) &&
             reinterpret_cast<std::uint64_t>(aligned) < end;
    if (ours && std::sscanf(line.c_str(), "AnonHugePages: %llu", &kib) == 1 && kib >= 2048)
      return words;
  }
  return nullptr;
}

std::uint64_t* shared(std::size_t bytes) {
  const int file = memfd_create("direct_map_check", 0);
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  return fill(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), bytes);
}

}  // namespace

int main() {
  if (!kernel_offers_it()) {
    fmt::print("this kernel has no bpf_rdonly_cast\n");
    return 77;
  }
  const dynprof::DirectMap map = dynprof::find_direct_map();
  if (map.base == 0) {
    fmt::print("not found\n");
    return 1;
  }
  Reader reader(map);
  auto say = [](bool read, const char* kind) {
    fmt::print("{} {}\n", read ? "read" : "left", kind);
  };
  std::uint64_t* small = anonymous(4 * kPage);
  say(reader.find(small + 3, small + 1500), "4 KiB pages");
  say(reader.reads(small + kPage / 8 - 1, small + kPage / 8), "neighbours of two pages");
  if (const std::uint64_t* large = large_page())
    say(reader.reads(large + 70000, large + 200001), "a large page");
  const std::uint64_t* file = shared(4 * kPage);
  say(reader.reads(file + 5, file + 1200), "shared memory");
  const std::uint64_t stack[] = {0x0123456789abcdef, 0xfedcba9876543210};
  say(reader.reads(&stack[0], &stack[1]), "the stack");
  const std::uint64_t code = reinterpret_cast<std::uint64_t>(&kernel_offers_it) & ~7ULL;
  std::uint64_t words[2];
  std::memcpy(words, reinterpret_cast<const void*>(code), sizeof words);
  say(reader.reads(code, code + 8, words[0], words[1]), "code of a file");

  // Memory that is not there, or not the process's: whatever is expected of it.
  std::uint64_t* gone = anonymous(4 * kPage);
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(gone);
  const std::uint64_t a = gone[3], b = gone[9];
  mprotect(gone, 4 * kPage, PROT_NONE);
  say(reader.reads(address + 24, address + 72, a, b), "memory without rights");
  munmap(gone, 4 * kPage);
  say(reader.reads(address + 24, address + 72, a, b), "memory given back");
  void* untouched =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto fresh = reinterpret_cast<std::uint64_t>(untouched);
  say(reader.reads(fresh, fresh + 8, 0, 0), "memory never touched");
  say(reader.reads(map.base + kPage, map.base + kPage, 0, 0), "an address of the kernel");
  say(reader.reads(8, 16, 0, 0), "the first page");
  return 0;
}
