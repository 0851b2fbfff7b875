// The ring buffers between the kernel side and user space, drained for a bounded time: the writers may be
// faster than the reader, and then they are never empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

struct ring_buffer;

namespace dynprof {

// The most that one call takes from each ring, whichever is reached first.
struct DrainBudget {
  std::uint64_t time_ns = 10'000'000;
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
};

class EventRings {
 public:
  using Visitor = std::function<void(std::span<const std::byte>)>;

  // Of a map of type BPF_MAP_TYPE_RINGBUF, which stays the caller's.
  Result<void> add(int map_fd);
  // Readable when something was written into one of them with a wake-up.
  int poll_fd() const { return poll_.get(); }
  // Hands out what waits, oldest first of each ring. True: nothing was left. At least one event of each
  // ring is handed out, so that a call always gets further.
  bool drain(const Visitor& visit, const DrainBudget& budget);
  // Bytes of all of them together.
  std::uint64_t capacity() const { return capacity_; }

 private:
  // One call's, of one ring.
  struct Drain {
    const Visitor* visit = nullptr;
    std::uint64_t until_ns = 0;
    std::uint64_t bytes_left = 0;
  };
  struct Deleter {
    void operator()(ring_buffer* ring) const;
  };
  struct Ring {
    std::unique_ptr<Drain> drain;  // libbpf keeps its address
    std::unique_ptr<ring_buffer, Deleter> buffer;
  };
  static int on_event(void* context, void* data, std::size_t size);

  UniqueFd poll_;
  std::vector<Ring>
      rings_;  // each by itself, so that one which is never empty leaves the others their turn
  std::uint64_t capacity_ = 0;
};

}  // namespace dynprof
