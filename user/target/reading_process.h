// A separate process that reads pages of a target that are not present, and may never become so. A file that
// the target itself serves (FUSE), or userfaultfd, can keep such a read from returning, and only the end
// of the whole process ends it. So it is another process than the one that records. After a while it is
// killed, and that target is no longer read.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {

// Safe to use from several threads; they wait for each other.
class ReadingProcess {
 public:
  // Of all threads of this program; started when it is first needed, if not before.
  static ReadingProcess& of_program();

  // After `patience` a read is given up. Of so many targets in all: then only what is present is read, of
  // any, so that a thousand such targets do not stop a recording.
  explicit ReadingProcess(std::chrono::milliseconds patience = std::chrono::seconds(2),
                          std::size_t most_given_up = 8)
      : patience_(patience), most_given_up_(most_given_up) {}
  ~ReadingProcess();
  ReadingProcess(const ReadingProcess&) = delete;
  ReadingProcess& operator=(const ReadingProcess&) = delete;

  // How many bytes were read from the start; `problem` is an errno, ETIMEDOUT when it was given up.
  std::size_t read(pid_t pid, std::uint64_t address, std::span<std::byte> into, int& problem);
  // Starts it now: a copy of a program that has little memory yet, and no maps of the kernel side.
  void prepare();
  // Nothing is to be read for now.
  void end();
  // Whether a read of this process did not return.
  bool given_up(pid_t pid);

 private:
  struct Request;
  struct Reply;
  std::size_t ask(const Request& request, std::span<std::byte> into, int& problem);
  bool start();
  void abandon();
  void reap();

  bool may_ask() const { return stuck_.load() < most_given_up_; }

  const std::chrono::milliseconds patience_;
  const std::size_t most_given_up_;
  std::mutex mutex_;
  UniqueFd socket_;
  pid_t child_ = 0;
  std::vector<pid_t> ending_;  // killed, not yet gone
  // Checked before each read, so that no thread waits for a read in progress.
  std::atomic<std::size_t> stuck_{0};
  std::mutex given_up_mutex_;
  std::map<pid_t, std::uint64_t> given_up_;  // with when it began
};

}  // namespace dynprof
