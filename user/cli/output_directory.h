// The directory a recording and everything made from it goes into: new, private (0700), and made with
// the rights of the user behind sudo. Files are made relative to its descriptor, never by path.
#pragma once

#include <memory>
#include <string>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

class OutputDirectory {
 public:
  // Refuses a path that exists: a recording is never overwritten.
  static Result<OutputDirectory> create(const std::string& path);

  Result<std::unique_ptr<OutputFile>> file(const std::string& name) const;
  // A file that is kept even if the program ends while writing it: the recording.
  Result<UniqueFd> plain_file(const std::string& name) const;
  Result<UniqueFd> readable(const std::string& name) const;
  Result<OutputDirectory> subdirectory(const std::string& name) const;

  // Less than 64 MiB and less than a twentieth of its file system are free.
  bool disk_is_nearly_full() const;

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

 private:
  OutputDirectory(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  static Result<OutputDirectory> create_at(int parent, const std::string& name,
                                           const std::string& shown);
  UniqueFd fd_;
  std::string path_;
};

}  // namespace dynprof
