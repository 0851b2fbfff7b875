#include "user/generated/gc_walk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

namespace dynprof {
namespace {

// PyGC_Head: _gc_next, _gc_prev, whose low bits are flags.
constexpr std::uint64_t kHeadSize = 16;
constexpr std::uint64_t kPointer = ~std::uint64_t{7};
// Three generations and the frozen objects; in the first releases of 3.14 young, two old and frozen ones.
constexpr std::size_t kMaxRings = 4;
// The heads of the rings lie together in PyInterpreterState.gc: 24 bytes apart but for the last.
constexpr std::uint64_t kNear = 128;
constexpr int kTries = 5;

// Neighbours in a ring are often neighbours in memory: whole pages are read and kept a while.
class Pages {
 public:
  explicit Pages(RemoteMemory& memory) : memory_(memory) {}

  bool read(std::uint64_t address, std::span<std::byte> into) {
    std::uint64_t offset = address % kPage;
    if (offset + into.size() > kPage) return memory_.read(address, into);
    Page& page = pages_[address / kPage % pages_.size()];
    if (page.address != address - offset) {
      page.address = 0;
      if (!memory_.read(address - offset, page.bytes)) return false;
      page.address = address - offset;
    }
    std::memcpy(into.data(), page.bytes.data() + offset, into.size());
    return true;
  }
  void forget() {
    for (Page& page : pages_) page.address = 0;
  }

 private:
  static constexpr std::uint64_t kPage = 4096;
  struct Page {
    std::uint64_t address = 0;
    std::array<std::byte, kPage> bytes;
  };
  RemoteMemory& memory_;
  std::vector<Page> pages_{1024};
};

struct Link {
  std::uint64_t next = 0;
  std::uint64_t type = 0;  // of the object behind it
};

class Rings {
 public:
  Rings(PythonObjects& python, std::span<const std::uint64_t> types, std::size_t max_objects,
        LookDeadline deadline)
      : memory_(python.objects().memory().current()),
        pages_(memory_),
        interpreter_(python.runtime().main_interpreter),
        interpreter_size_(python.objects().layout().interpreter_size),
        type_offset_(python.objects().layout().object_type),
        types_(types),
        max_objects_(max_objects),
        deadline_(deadline),
        of_ring_(types.size()) {
    found_.objects.resize(types.size());
  }

  GcInstances run(std::uint64_t anchor) {
    std::uint64_t first = walk_steady(anchor - kHeadSize);
    if (first == 0) return std::move(found_);
    std::size_t rings = 1;
    bool whole = true;
    for (std::uint64_t head = first - kNear; head <= first + kNear; head += 8) {
      if (head == first || !is_head(head)) continue;
      if (++rings > kMaxRings) return std::move(found_);
      whole = walk_steady(head) == head && whole;
    }
    found_.complete = whole && rings == kMaxRings;
    return std::move(found_);
  }

 private:
  bool in_interpreter(std::uint64_t address) const {
    return address >= interpreter_ && address - interpreter_ < interpreter_size_;
  }

  // A head is linked to from both sides; an empty ring is a head alone.
  bool is_head(std::uint64_t head) {
    auto next = memory_.read_pointer(head);
    auto previous = memory_.read_pointer(head + 8);
    if (!next || !previous || !in_interpreter(head)) return false;
    auto back = memory_.read<std::uint64_t>(*next + 8);
    auto forth = memory_.read<std::uint64_t>(*previous);
    return back && forth && (*back & kPointer) == head && (*forth & kPointer) == head;
  }

  // As walk(), again when the ring changed meanwhile: collections of young objects are short, but many.
  std::uint64_t walk_steady(std::uint64_t start) {
    std::uint64_t head = 0;
    for (int i = 0; i < kTries && head == 0 && !given_up_; ++i) {
      pages_.forget();
      for (std::vector<std::uint64_t>& objects : of_ring_) objects.clear();
      head = walk(start);
    }
    for (std::size_t i = 0; i < of_ring_.size(); ++i) {
      std::vector<std::uint64_t>& all = found_.objects[i];
      all.insert(all.end(), of_ring_[i].begin(), of_ring_[i].end());
      of_ring_[i].clear();
    }
    return head;
  }

  // Once around from `start`; the ring's head, 0 when the end was not reached. A ring has one head: where
  // there are two, a collection has moved objects to another ring meanwhile. That one may not lead back
  // to `start`, and when it is empty it has nothing but its head.
  std::uint64_t walk(std::uint64_t start) {
    std::uint64_t head = 0;
    std::uint64_t at = start;
    do {
      if (!plausible_pointer(at)) return 0;
      Link link;
      if (!read_link(at, link)) return 0;
      if (in_interpreter(at)) {
        if (head != 0) return 0;
        head = at;
      } else if (!take(at + kHeadSize, link.type)) {
        return 0;
      }
      at = link.next & kPointer;
    } while (at != start);
    return head;
  }

  bool read_link(std::uint64_t at, Link& link) {
    std::array<std::byte, 32> bytes;
    if (!pages_.read(at, bytes)) return false;
    link.next = load<std::uint64_t>(bytes, 0);
    link.type = load<std::uint64_t>(bytes, kHeadSize + type_offset_);
    return true;
  }

  bool take(std::uint64_t object, std::uint64_t type) {
    given_up_ = ++looked_at_ > max_objects_ || (looked_at_ % 4096 == 0 && over(deadline_));
    if (given_up_) return false;
    for (std::size_t i = 0; i < types_.size(); ++i) {
      if (type == types_[i]) of_ring_[i].push_back(object);
    }
    return true;
  }

  RemoteMemory& memory_;
  Pages pages_;
  std::uint64_t interpreter_;
  std::uint64_t interpreter_size_;
  std::uint32_t type_offset_;
  std::span<const std::uint64_t> types_;
  std::size_t max_objects_;
  LookDeadline deadline_;
  std::size_t looked_at_ = 0;
  bool given_up_ = false;
  std::vector<std::vector<std::uint64_t>> of_ring_;  // by type, as in found_
  GcInstances found_;
};

}  // namespace

GcInstances find_gc_instances(PythonObjects& python, std::uint64_t anchor,
                              std::span<const std::uint64_t> types, std::size_t max_objects,
                              LookDeadline deadline) {
  const PythonLayout& t = python.objects().layout();
  if (t.free_threaded || t.interpreter_size == 0) {
    return {.objects = std::vector<std::vector<std::uint64_t>>(types.size())};
  }
  return Rings(python, types, max_objects, deadline).run(anchor);
}

bool all_in_rings(RemoteMemory& memory, std::span<const std::uint64_t> objects) {
  return std::all_of(objects.begin(), objects.end(), [&memory](std::uint64_t object) {
    const std::uint64_t head = object - kHeadSize;
    const auto next = memory.read_pointer(head);
    const auto back = next ? memory.read<std::uint64_t>(*next + 8) : std::nullopt;
    return back && (*back & kPointer) == head;
  });
}

}  // namespace dynprof
