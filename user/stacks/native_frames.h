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
#include "user/stacks/native_unwind.h"
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
  // a minute, so `naming` (may be empty) is called for each file. The sentence says whose source places could
  // not be read, "" when all could.
  std::string symbolize(const std::function<void(const std::string& path)>& naming);

 private:
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::string>;
  using RootKey = std::pair<std::uint64_t, std::uint64_t>;  // device and inode
  struct MappedFile {
    std::vector<pid_t> pids;  // the first that map it: what reading it takes is one of theirs
    UniqueFd fd;
    std::vector<std::uint8_t> image;  // instead of a file: the vdso
    int root = -1;                    // where its debug file is looked for
    StringId name = 0;
    std::unordered_map<std::uint64_t, FrameId> frames;  // by offset in the file
  };
  // Code without a file, of one process.
  struct RuntimeCode {
    pid_t pid = 0;
    UniqueFd perf_map;
    StringId name = 0;
    std::unordered_map<std::uint64_t, FrameId> frames;  // by address
  };

  MappedFile& mapped_file(pid_t pid, const Mapping& mapping);
  void open(pid_t pid, const Mapping& mapping, MappedFile& file);
  void describe(const MappedFile& file);
  int root_of(pid_t pid);
  FrameId runtime_code_frame(pid_t pid, std::uint64_t space, std::uint64_t address);
  // Beyond so many addresses the frame is of the object only.
  FrameId frame_of(pid_t pid, StringId object, std::uint64_t offset,
                   std::unordered_map<std::uint64_t, FrameId>& known);
  void symbolize_file(const std::string& path, MappedFile& file, PlaceReader& reader);
  // Names of functions that DWARF has, by frame.
  std::unordered_map<FrameId, std::string> place_file(const std::string& path, MappedFile& file,
                                                      PlaceReader& reader, pid_t payer,
                                                      ReadBudget& budget);

  // While recording: headers and section names. The consumer waits meanwhile.
  static constexpr ReadLimits kHeaderLimits = {
      .file = {std::uint64_t{64} << 20, std::chrono::milliseconds(500)},
      .process = {std::uint64_t{256} << 20, std::chrono::milliseconds(2000)},
      .all = {std::uint64_t{2} << 30, std::chrono::milliseconds(20'000)}};
  // At the end: symbols. The largest file of torch takes a second.
  static constexpr ReadLimits kSymbolLimits = {
      .file = {std::uint64_t{2} << 30, std::chrono::seconds(20)},
      .process = {std::uint64_t{8} << 30, std::chrono::seconds(60)},
      .all = {std::uint64_t{32} << 30, std::chrono::seconds(180)}};

  RecordingWriter& writer_;
  ReadAccounts header_accounts_{kHeaderLimits};
  ReadAccounts symbol_accounts_{kSymbolLimits};
  std::map<FileKey, MappedFile> files_;
  std::map<pid_t, std::size_t> files_of_;  // open ones
  std::map<pid_t, std::size_t> frames_of_;
  std::size_t frames_ = 0;
  std::size_t open_files_ = 0;
  std::map<RootKey, UniqueFd> roots_;
  std::unordered_map<std::uint64_t, RuntimeCode> runtime_code_;  // by AddressSpace::id
  std::unordered_map<std::uint64_t, FrameId> kernel_frames_;
  FrameId unmapped_ = 0;
};

}  // namespace dynprof
