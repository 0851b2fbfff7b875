// Ends the program when a system call that a target delays does not return. Pages known to be absent are read
// by another process (reading_process.h); a target can still remove a page between the check and the
// read, or keep its own memory map locked. The thread that waits then cannot be freed, but the recording
// on disk is readable up to its last flush, and the kernel removes everything when the program ends.
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
