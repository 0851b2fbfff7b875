// Unused bytes in the code of a process: what lies between the end of a file's code and the end of the page. The
// process never executes or reads them; a few instructions can be put there without a change to any of its
// mappings, by which it then maps memory of its own.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/inject/target_memory.h"

namespace dynprof {

// Padding of `bytes` bytes, which this object alone writes to: the file is locked (flock), so that another
// dynprof-bpf takes other padding.
class CodePadding {
 public:
  // In the interpreter's file or a library that is never unloaded. Only zeros that are zeros in the
  // file too are taken.
  static Result<CodePadding> find(pid_t pid, const std::string& interpreter, std::size_t bytes);
  CodePadding(CodePadding&&) noexcept = default;
  CodePadding& operator=(CodePadding&&) = delete;
  ~CodePadding();

  std::uint64_t address() const { return address_; }
  const std::string& path() const { return path_; }
  Result<void> write(std::span<const std::byte> bytes);
  // Zeros again. Not before the last thread has left it.
  Result<void> restore();
  // It has to stay as it is: a thread may still come to it.
  void leave() { written_ = false; }

 private:
  CodePadding(CodeWriter writer, UniqueFd file, std::string path, std::uint64_t address,
              std::size_t bytes)
      : writer_(std::move(writer)),
        file_(std::move(file)),
        path_(std::move(path)),
        address_(address),
        bytes_(bytes) {}

  CodeWriter writer_;
  UniqueFd file_;
  std::string path_;
  std::uint64_t address_;
  std::size_t bytes_;
  bool written_ = false;
};

}  // namespace dynprof
