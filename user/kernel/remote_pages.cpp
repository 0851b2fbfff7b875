#include "user/kernel/remote_pages.h"

#include <bpf/bpf.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "bpf/remote_memory.h"
#include "remote_memory.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMaxProcesses = 8192;

// The requests, mapped; the kernel rounds an entry up to 8 bytes, and all of them to whole pages.
class Requests {
 public:
  static constexpr std::size_t kEntryBytes = (sizeof(dp_remote_request) + 7) / 8 * 8;
  static constexpr std::size_t kBytes =
      (kEntryBytes * DP_REMOTE_REQUESTS + kPage - 1) / kPage * kPage;

  explicit Requests(int map)
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0)) {}
  ~Requests() {
    if (mapped()) munmap(memory_, kBytes);
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  bool mapped() const { return memory_ != MAP_FAILED; }
  dp_remote_request& operator[](std::size_t i) const {
    return *reinterpret_cast<dp_remote_request*>(static_cast<std::byte*>(memory_) +
                                                 i * kEntryBytes);
  }

 private:
  void* memory_;
};

// A request of one thread.
class Turn {
 public:
  explicit Turn(std::array<std::atomic_flag, DP_REMOTE_REQUESTS>& taken) : taken_(taken) {
    while (index_ < taken_.size() && taken_[index_].test_and_set(std::memory_order_acquire))
      ++index_;
  }
  ~Turn() {
    if (*this) taken_[index_].clear(std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return index_ < taken_.size(); }
  std::size_t index() const { return index_; }

 private:
  std::array<std::atomic_flag, DP_REMOTE_REQUESTS>& taken_;
  std::size_t index_ = 0;
};

class RemotePages final : public InPlaceReader {
 public:
  explicit RemotePages(Skeleton<remote_memory_bpf> programs)
      : programs_(std::move(programs)),
        find_fd_(bpf_program__fd(programs_->progs.find_task)),
        read_fd_(bpf_program__fd(programs_->progs.read_remote)),
        requests_(bpf_map__fd(programs_->maps.remote_requests)) {}

  bool usable() const { return requests_.mapped(); }

  void read(pid_t pid, std::span<RemoteRange> ranges) override {
    if (refused_.load(std::memory_order_relaxed)) return;
    Turn turn(taken_);
    if (!turn || !prepare(turn.index(), pid)) return;
    dp_remote_request& request = requests_[turn.index()];
    for (std::size_t begin = 0; begin < ranges.size();) {
      const std::size_t end = fill(request, ranges, begin);
      if (end == begin) {  // too large for one request
        ++begin;
        continue;
      }
      if (run(read_fd_, turn.index()) != 1) return forget(pid);
      take(request, ranges.subspan(begin, end - begin));
      begin = end;
    }
  }

 private:
  struct Task {
    std::uint64_t task = 0, start_time = 0;
  };

  // The return value of the program; -1: it did not run.
  int run(int program, std::uint64_t index) {
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &index, .ctx_size_in = sizeof index);
    if (bpf_prog_test_run_opts(program, &options) == 0) return static_cast<int>(options.retval);
    if (errno != EINTR) refused_.store(true, std::memory_order_relaxed);
    return -1;
  }

  bool prepare(std::size_t index, pid_t pid) {
    dp_remote_request& request = requests_[index];
    request.pid = static_cast<std::uint32_t>(pid);
    {
      std::lock_guard lock(mutex_);
      if (auto known = tasks_.find(pid); known != tasks_.end()) {
        request.task = known->second.task;
        request.start_time = known->second.start_time;
        return true;
      }
    }
    if (run(find_fd_, index) != 1) return false;
    std::lock_guard lock(mutex_);
    if (tasks_.size() >= kMaxProcesses) tasks_.clear();
    tasks_[pid] = {request.task, request.start_time};
    return true;
  }

  void forget(pid_t pid) {
    std::lock_guard lock(mutex_);
    tasks_.erase(pid);
  }

  // As many ranges as fit, from `begin` on, in parts of pages; the first that was not put in.
  static std::size_t fill(dp_remote_request& request, std::span<const RemoteRange> ranges,
                          std::size_t begin) {
    std::uint32_t count = 0, bytes = 0;
    std::size_t at = begin;
    for (; at < ranges.size(); ++at) {
      const RemoteRange& range = ranges[at];
      const std::uint64_t size = range.into.size();
      const std::uint64_t pages = (range.address % kPage + size + kPage - 1) / kPage;
      if (size > DP_REMOTE_BYTES - bytes || pages > DP_REMOTE_PIECES - count) break;
      for (std::uint64_t done = 0; done < size;) {
        const std::uint64_t address = range.address + done;
        const std::uint64_t part = std::min(size - done, kPage - address % kPage);
        request.pieces[count++] = {.address = address,
                                   .offset = bytes,
                                   .size = static_cast<std::uint16_t>(part),
                                   .done = 0};
        bytes += static_cast<std::uint32_t>(part);
        done += part;
      }
    }
    request.count = count;
    return at;
  }

  static void take(const dp_remote_request& request, std::span<RemoteRange> ranges) {
    const dp_remote_piece* piece = request.pieces;
    for (RemoteRange& range : ranges) {
      const std::size_t size = range.into.size();
      const std::uint8_t* bytes = request.data + piece->offset;
      bool whole = true;
      for (std::size_t done = 0; done < size; done += piece->size, ++piece)
        whole &= piece->done == piece->size;
      if (!whole) continue;
      if (size != 0) std::memcpy(range.into.data(), bytes, size);
      range.done = size;
    }
  }

  Skeleton<remote_memory_bpf> programs_;
  const int find_fd_, read_fd_;
  const Requests requests_;
  std::array<std::atomic_flag, DP_REMOTE_REQUESTS> taken_{};
  std::atomic<bool> refused_{false};
  std::mutex mutex_;
  std::map<pid_t, Task> tasks_;
};

}  // namespace

Result<std::shared_ptr<InPlaceReader>> open_remote_pages(const DirectMap& direct_map,
                                                         const PidNamespace& ours) {
  constexpr const char* kPrograms = "memory-reading";
  ASSIGN_OR_RETURN(auto programs, open_object<remote_memory_bpf>(kPrograms));
  set_pid_namespace(programs->rodata, ours);
  set_direct_map(programs->rodata, direct_map);
  TRY(load_object(kPrograms, *programs));
  auto reader = std::make_shared<RemotePages>(std::move(programs));
  if (!reader->usable())
    return errno_error("cannot map the requests of the memory-reading programs");
  return std::shared_ptr<InPlaceReader>(std::move(reader));
}

}  // namespace dynprof
