// How much of a file that somebody else wrote may be read, and for how long. A sparse file of a few
// kilobytes can have tables of many gigabytes, and a slow file system takes as long as it likes.
#pragma once

#include <chrono>
#include <cstdint>

namespace dynprof {

// How much may still be read, and until when. One of them can serve several files.
class ReadBudget {
 public:
  using Clock = std::chrono::steady_clock;
  ReadBudget(std::uint64_t bytes, std::chrono::milliseconds time)
      : bytes_(bytes), deadline_(Clock::now() + time) {}

  // Call it before each read. False: nothing more is to be read.
  bool take(std::uint64_t bytes) {
    if (bytes > bytes_ || Clock::now() > deadline_) refuse();
    if (refused_) return false;
    bytes_ -= bytes;
    return true;
  }
  // The same, between two steps of work on what was read.
  bool in_time() { return take(0); }
  bool spent() const { return bytes_ == 0; }
  // Something was not read, or not finished.
  bool refused() const { return refused_; }
  std::uint64_t left() const { return bytes_; }

 private:
  void refuse() {
    bytes_ = 0;
    refused_ = true;
  }

  std::uint64_t bytes_;
  Clock::time_point deadline_;
  bool refused_ = false;
};

// For one file: the symbols of the largest debug build of torch take less than half of it.
inline ReadBudget budget_for_one_file() {
  return ReadBudget(1ULL << 30, std::chrono::milliseconds(2000));
}

}  // namespace dynprof
