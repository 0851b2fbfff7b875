// Whether another process's memory is read in place as it is (bpf/remote_memory.bpf.c): one line for each thing tried, `right`
// or `wrong` with what it was. Exit 77: this kernel offers no such way.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "bpf/remote_memory.h"
#include "user/kernel/direct_map.h"
#include "user/kernel/pid_namespace.h"
#include "user/kernel/remote_pages.h"
#include "user/target/remote_memory.h"

namespace {

using dynprof::RemoteRange;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 64;

std::uint64_t word_at(std::uint64_t address) { return (address + 1) * 0x9e3779b97f4a7c15; }

std::byte* pages(std::size_t count, bool touched) {
  void* memory =
      mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* words = static_cast<std::uint64_t*>(memory);
  for (std::size_t i = 0; touched && i < count * kPage / 8; ++i)
    words[i] = word_at(reinterpret_cast<std::uint64_t>(words + i));
  return static_cast<std::byte*>(memory);
}

void say(bool right, const char* what) { fmt::print("{} {}\n", right ? "right" : "wrong", what); }

// A child that has a copy of our memory, and stays until it is killed.
class Child {
 public:
  explicit Child(const char* program = nullptr) : pid_(fork()) {
    if (pid_ != 0) return;
    if (program) {
      usleep(100'000);
      execl(program, program, "60", static_cast<char*>(nullptr));
      _exit(1);
    }
    while (true) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

struct Piece {
  std::vector<std::byte> bytes;
  RemoteRange range;
  Piece(const std::byte* address, std::size_t size)
      : bytes(size), range{reinterpret_cast<std::uint64_t>(address), bytes} {}
  Piece(Piece&&) = default;
};

bool same(const RemoteRange& range) {
  return range.complete() &&
         std::memcmp(range.into.data(), reinterpret_cast<const void*>(range.address),
                     range.into.size()) == 0;
}

// All ranges of one call.
bool read_all(dynprof::InPlaceReader& reader, pid_t pid, std::vector<Piece>& pieces) {
  std::vector<RemoteRange> ranges;
  for (Piece& piece : pieces) ranges.push_back({piece.range.address, piece.bytes});
  reader.read(pid, ranges);
  bool right = true;
  for (const RemoteRange& range : ranges) right &= same(range);
  return right;
}

bool reads_nothing(dynprof::InPlaceReader& reader, pid_t pid, const std::byte* address) {
  std::byte bytes[64];
  RemoteRange range{reinterpret_cast<std::uint64_t>(address), bytes};
  reader.read(pid, std::span(&range, 1));
  return range.done == 0;
}

}  // namespace

int main() {
  const dynprof::DirectMap map = dynprof::find_direct_map();
  if (map.base == 0) {
    fmt::print("this kernel's memory cannot be read in place\n");
    return 77;
  }
  const auto ours = dynprof::find_pid_namespace();
  const auto opened = ours ? dynprof::open_remote_pages(map, *ours) : ours.error();
  if (!opened) {
    fmt::print("{}\n", opened.error().what);
    return 1;
  }
  dynprof::InPlaceReader& reader = **opened;
  const std::byte* known = pages(kPages, true);
  const std::byte* untouched = pages(4, false);
  Child child;

  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < 60; ++i) pieces.emplace_back(known + 977 * i, 8 + i);
  say(read_all(reader, child.pid(), pieces), "small ranges");
  pieces.clear();
  pieces.emplace_back(known + kPage - 4, 8);
  pieces.emplace_back(known + 3 * kPage - 100, 2 * kPage);
  say(read_all(reader, child.pid(), pieces), "ranges over pages");
  pieces.clear();
  for (std::size_t i = 0; i < 3 * DP_REMOTE_PIECES; ++i) pieces.emplace_back(known + 300 * i, 16);
  say(read_all(reader, child.pid(), pieces), "more ranges than one request has");
  pieces.clear();
  pieces.emplace_back(known, kPages * kPage / 2);
  say(read_all(reader, child.pid(), pieces) == (kPages * kPage / 2 <= DP_REMOTE_BYTES),
      "one of 128 KiB");
  pieces.clear();
  pieces.emplace_back(known, kPages * kPage);
  pieces.emplace_back(known + 8, 8);
  std::vector<RemoteRange> ranges = {{pieces[0].range.address, pieces[0].bytes},
                                     {pieces[1].range.address, pieces[1].bytes}};
  reader.read(child.pid(), ranges);
  say(ranges[0].done == 0 && same(ranges[1]), "one that is too large, and the next");

  say(reads_nothing(reader, child.pid(), untouched), "memory never touched");
  say(reads_nothing(reader, child.pid(), nullptr), "the first page");
  say(reads_nothing(reader, child.pid(), reinterpret_cast<const std::byte*>(map.base)),
      "an address of the kernel");
  say(reads_nothing(reader, child.pid(), reinterpret_cast<const std::byte*>(~0ULL - 16)),
      "the end of the address space");
  // A range is read whole or not at all.
  Piece half(untouched - 8, 16);
  reader.read(child.pid(), std::span(&half.range, 1));
  say(half.range.done == 0 || same(half.range), "a range whose second page is not there");

  // ProcessMemory takes the rest from the kernel.
  dynprof::InPlaceReader::install(*opened);
  dynprof::ProcessMemory memory(child.pid());
  Piece fresh(untouched, 64), old(known + 5, 64);
  std::vector<RemoteRange> both = {{fresh.range.address, fresh.bytes},
                                   {old.range.address, old.bytes}};
  memory.read_many(both);
  say(same(both[0]) && same(both[1]), "what is not there, by system calls");
  dynprof::InPlaceReader::install(nullptr);

  // Threads at the same time: those without a request read nothing, which is no mistake.
  std::atomic<int> mistakes = 0, done = 0;
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 2 * DP_REMOTE_REQUESTS; ++t)
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < 500; ++i) {
          Piece piece(known + (t * 4099 + i * 131) % ((kPages - 1) * kPage), 200);
          reader.read(child.pid(), std::span(&piece.range, 1));
          done += piece.range.done != 0;
          mistakes += piece.range.done != 0 && !same(piece.range);
        }
      });
  }
  say(mistakes == 0 && done > 0, "threads at the same time");

  const pid_t gone = child.pid();
  child.end();
  say(reads_nothing(reader, gone, known), "a process that ended");
  Child next("/bin/sleep");
  say(!reads_nothing(reader, next.pid(), known), "a new process before its exec");
  for (int i = 0; i < 100 && !reads_nothing(reader, next.pid(), known); ++i) usleep(50'000);
  say(reads_nothing(reader, next.pid(), known), "the same after its exec");
  return 0;
}
