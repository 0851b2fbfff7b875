// Where an ELF image is read from: a file by pread (one truncated under us gives a short read, never
// SIGBUS), or bytes in memory (the vdso). Owns neither. What a read is to be paid from is not read once
// that is spent.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include <unistd.h>

#include "symbolizer/symbols/read_budget.h"

namespace dynprof {

class ImageBytes {
 public:
  explicit ImageBytes(int fd, ReadBudget* budget = nullptr) : fd_(fd), budget_(budget) {}
  explicit ImageBytes(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  // How much of `into` there is at this offset.
  std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> into) const {
    if (budget_ != nullptr && !budget_->take(into.size())) return 0;
    if (fd_ < 0) {
      if (offset >= bytes_.size()) return 0;
      const auto part = bytes_.subspan(static_cast<std::size_t>(offset));
      const std::size_t size = std::min(part.size(), into.size());
      std::memcpy(into.data(), part.data(), size);
      return size;
    }
    std::size_t done = 0;
    while (done < into.size() && offset + done <= INT64_MAX) {
      const ssize_t got =
          ::pread(fd_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }
  bool read(std::uint64_t offset, std::span<std::uint8_t> into) const {
    return read_some(offset, into) == into.size();
  }
  template <class T>
  bool read_value(std::uint64_t offset, T& value) const {
    return read(offset, {reinterpret_cast<std::uint8_t*>(&value), sizeof value});
  }

 private:
  int fd_ = -1;
  ReadBudget* budget_ = nullptr;
  std::span<const std::uint8_t> bytes_;
};

}  // namespace dynprof
