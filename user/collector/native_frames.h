// Frames outside Python: where an address lies (mapped file and offset) while the process still
// exists, and at the end of a recording the function names, one ELF file at a time, so that reading
// a large symbol table never delays sampling.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/writer.h"
#include "user/target/process.h"

namespace dynprof {

// The executable mappings of one process, read again when an address falls outside them.
class AddressSpace {
 public:
  explicit AddressSpace(pid_t pid) : pid_(pid) {}
  // nullptr: no file or named region is mapped there.
  const Mapping* find(std::uint64_t address, std::uint64_t now_ns);
  void forget() { mappings_.clear(); }

 private:
  const Mapping* search(std::uint64_t address) const;

  pid_t pid_;
  std::vector<Mapping> mappings_;  // executable ones, by address
  std::uint64_t read_ns_ = 0;
};

class NativeFrames {
 public:
  explicit NativeFrames(RecordingWriter& writer) : writer_(writer) {}

  FrameId user_frame(pid_t pid, AddressSpace& space, std::uint64_t address, std::uint64_t now_ns);
  FrameId kernel_frame(std::uint64_t address);
  // Looks up every address seen and hands the names to the writer.
  void symbolize();

 private:
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::string>;
  struct MappedFile {
    UniqueFd fd;
    StringId name = 0;
    std::unordered_map<std::uint64_t, FrameId> frames;  // by offset in the file
  };

  MappedFile& mapped_file(pid_t pid, const Mapping& mapping);

  RecordingWriter& writer_;
  std::map<FileKey, MappedFile> files_;
  std::size_t open_files_ = 0;
  std::unordered_map<std::uint64_t, FrameId> kernel_frames_;
  FrameId unmapped_ = 0;
};

}  // namespace dynprof
