// Frames outside Python: where an address lies (mapped file and offset) while the process still
// exists, and at the end of a recording the function names, one ELF file at a time, so that reading
// a large symbol table never delays sampling. Each file's build-id and segments go into the recording,
// so that names can be looked up later and elsewhere too.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/writer.h"
#include "user/collector/native_unwind.h"
#include "user/symbols/place_reader.h"
#include "user/target/process.h"

namespace dynprof {

// The executable mappings of one process, read again when an address falls outside them.
class AddressSpace {
 public:
  explicit AddressSpace(pid_t pid) : pid_(pid) {}
  // Where its mappings are kept when it has ended, or those of the parent that it shares them with;
  // may be null.
  void set_kept(NativeSpaceRef kept) { kept_ = std::move(kept); }
  // nullptr: no file or named region is mapped there.
  const Mapping* find(std::uint64_t address, std::uint64_t now_ns);
  void forget() { mappings_.clear(); }
  std::uint64_t id() const { return id_; }  // of no other space, ever

 private:
  const Mapping* search(std::uint64_t address) const;

  static std::uint64_t next_id();

  pid_t pid_;
  std::uint64_t id_ = next_id();
  NativeSpaceRef kept_;
  std::vector<Mapping> mappings_;  // executable ones, by address
  std::uint64_t read_ns_ = 0;
};

class NativeFrames {
 public:
  explicit NativeFrames(RecordingWriter& writer) : writer_(writer) {}

  FrameId user_frame(pid_t pid, AddressSpace& space, std::uint64_t address, std::uint64_t now_ns);
  FrameId kernel_frame(std::uint64_t address);
  // Looks up every address seen and hands names and source places to the writer. Reading DWARF may take
  // a minute, so `naming` (may be empty) is told each file. The sentence says whose source places could
  // not be read, "" when all could.
  std::string symbolize(const std::function<void(const std::string& path)>& naming);

 private:
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::string>;
  using RootKey = std::pair<std::uint64_t, std::uint64_t>;  // device and inode
  struct MappedFile {
    UniqueFd fd;
    std::vector<std::uint8_t> image;  // instead of a file: the vdso
    int root = -1;                    // where its debug file is looked for
    StringId name = 0;
    std::unordered_map<std::uint64_t, FrameId> frames;  // by offset in the file
  };
  // Code without a file, of one process.
  struct MadeCode {
    UniqueFd perf_map;
    StringId name = 0;
    std::unordered_map<std::uint64_t, FrameId> frames;  // by address
  };

  MappedFile& mapped_file(pid_t pid, const Mapping& mapping);
  void open(pid_t pid, const Mapping& mapping, MappedFile& file);
  void describe(const MappedFile& file);
  int root_of(pid_t pid);
  FrameId made_frame(pid_t pid, std::uint64_t space, std::uint64_t address);
  FrameId frame_of(StringId object, std::uint64_t offset,
                   std::unordered_map<std::uint64_t, FrameId>& known);
  void symbolize_file(const std::string& path, MappedFile& file, PlaceReader& reader);
  // Names of functions that DWARF has, by frame.
  std::unordered_map<FrameId, std::string> place_file(const std::string& path, MappedFile& file,
                                                      PlaceReader& reader);

  RecordingWriter& writer_;
  std::map<FileKey, MappedFile> files_;
  std::size_t open_files_ = 0;
  std::map<RootKey, UniqueFd> roots_;
  std::unordered_map<std::uint64_t, MadeCode> made_;  // by AddressSpace::id
  std::unordered_map<std::uint64_t, FrameId> kernel_frames_;
  FrameId unmapped_ = 0;
};

}  // namespace dynprof
