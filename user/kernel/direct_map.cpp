#include "user/kernel/direct_map.h"

#include <cpuid.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <cstddef>
#include <span>

#include "bpf/limits.h"
#include "direct_map.skel.h"
#include "user/kernel/bpf_object.h"

namespace dynprof {
namespace {

constexpr std::size_t kPage = 4096;
// Of physical memory below the page table, at most.
constexpr std::uint64_t kMostGiB = 16384;

// Memory that stays where it is, with words nothing else holds.
class KnownWords {
 public:
  KnownWords()
      : memory_(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) return;
    auto* words = static_cast<std::uint64_t*>(memory_);
    const std::span random(words + kFirst, 2);
    ready_ = mlock(memory_, kSize) == 0 && getrandom(random.data(), random.size_bytes(), 0) ==
                                               static_cast<ssize_t>(random.size_bytes());
    words[kSecond] = words[kFirst + 1];
  }
  ~KnownWords() {
    if (memory_ != MAP_FAILED) munmap(memory_, kSize);
  }
  KnownWords(const KnownWords&) = delete;
  KnownWords& operator=(const KnownWords&) = delete;

  bool ready() const { return ready_; }
  std::uint64_t* word(int i) const {
    return static_cast<std::uint64_t*>(memory_) + (i == 0 ? kFirst : kSecond);
  }

 private:
  static constexpr std::size_t kSize = 4 * kPage;
  static constexpr std::size_t kFirst = 5, kSecond = 3 * kPage / 8 + 77;
  void* memory_;
  bool ready_ = false;
};

// Bits that are an address in a page-table entry. With memory encryption the processor keeps some of
// those it has for itself (AMD's manual, CPUID 8000_001F).
std::uint64_t physical_mask() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  unsigned bits = 52;
  if (__get_cpuid(0x80000008, &a, &b, &c, &d)) bits = a & 0xff;
  if (__get_cpuid(0x8000001f, &a, &b, &c, &d) && (a & 1)) bits -= (b >> 6) & 0x3f;
  if (bits < 36 || bits > 52) return 0;
  return ((std::uint64_t{1} << bits) - 1) & ~(std::uint64_t{kPage} - 1);
}

}  // namespace

DirectMap find_direct_map() {
  DirectMap found;
  KnownWords words;
  found.physical_mask = physical_mask();
  if (!words.ready() || found.physical_mask == 0) return found;
  constexpr const char* kPrograms = "direct-map";
  auto opened = open_object<direct_map_bpf>(kPrograms);
  if (!opened || !load_object(kPrograms, **opened)) return found;
  const Skeleton<direct_map_bpf>& skeleton = *opened;
  auto* data = skeleton->bss;
  if (data == nullptr) return found;  // see KernelSide::load
  data->physical_mask = found.physical_mask;
  for (int i = 0; i < 2; ++i) {
    data->address[i] = reinterpret_cast<std::uint64_t>(words.word(i));
    data->expected[i] = *words.word(i);
  }
  for (std::uint64_t first = 0; first < kMostGiB && found.base == 0; first += DP_PLACES_TRIED) {
    data->first = first;
    if (!run_once(skeleton->progs.find_direct_map)) return found;
    found.base = data->base;
    found.levels = data->levels;
  }
  return found;
}

}  // namespace dynprof
