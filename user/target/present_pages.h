// Which pages of a process are in memory: a read of any other page can block.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "user/target/remote_memory.h"

namespace dynprof {

// Keeps its memory from one question to the next; of one thread.
class PresentPages {
 public:
  // For each range whether all of its pages are present: then reading it does not wait. They may go at
  // any time, so this is no promise (awaiting_target.h). True for all where the kernel does not report it.
  // The kernel is asked at most once in 100 ms about a page that is present: most reads are of pages that
  // were read a moment before.
  const std::vector<bool>& of(pid_t pid, std::span<const RemoteRange> ranges);

 private:
  struct Known {
    std::uint64_t page = 0;
    std::uint64_t until_ms = 0;
    pid_t pid = 0;
  };
  Known& place_of(pid_t pid, std::uint64_t page);
  bool known(pid_t pid, const RemoteRange& range, std::uint64_t now_ms);
  void ask(pid_t pid, std::span<const RemoteRange> ranges, std::uint64_t now_ms);
  bool ask_by_call(pid_t pid);
  bool ask_by_file(pid_t pid);

  bool call_allowed_ = true;
  bool file_allowed_ = true;
  std::array<Known, 1024> known_;     // of several pages with one place, the last one
  std::vector<std::size_t> unknown_;  // indices of ranges that are asked about
  // Of those ranges' pages, in their order.
  std::vector<void*> pages_;
  std::vector<int> states_;
  std::vector<bool> present_;
};

}  // namespace dynprof
