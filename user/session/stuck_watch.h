// Ends the program when a system call that a target delays does not return. What can be foreseen is read
// by another process (reading_process.h); a target can still take a page away between our look and our
// read, or keep its own memory map locked. The thread that waits then cannot be freed, but the recording
// on disk is readable up to its last flush, and all that the kernel side has of us ends with us.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace dynprof {

class StuckWatch {
 public:
  // Longer than any read takes on a busy machine.
  static constexpr std::chrono::seconds kPatience{20};

  // `end` gets the sentence that says why, on a thread of this, and should not return.
  explicit StuckWatch(std::function<void(const std::string& sentence)> end,
                      std::chrono::milliseconds patience = kPatience);
  ~StuckWatch();
  StuckWatch(const StuckWatch&) = delete;
  StuckWatch& operator=(const StuckWatch&) = delete;

 private:
  void watch();

  std::function<void(const std::string& sentence)> end_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dynprof
