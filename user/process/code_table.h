// The code objects of one process that samples have shown: for each address the identity last seen
// there and the recording's CodeId. New ones are read from the target at once and together, since
// they may be gone soon; one that could not be read is tried again at later sightings, and stands in
// the recording under its reason meanwhile. Only the latest identity of an address is kept: an
// identity is made of addresses too, and a code object freed long ago may come back as another one
// with all of them equal.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/target/code_reader.h"

namespace dynprof {

class CodeTable {
 public:
  // Reads those of `codes` that are new, or worth another attempt, and returns those that were read whole.
  // `python` is major << 8 | minor.
  std::vector<RemoteCode> learn(std::span<const CodeRequest> codes, CodeReader& reader,
                                RecordingWriter& writer, std::uint16_t python);
  // 0 (an unknown code object) for one that was never learned.
  CodeId find(std::uint64_t address, std::uint32_t identity) const;
  // Code objects that no attempt could read so far.
  std::uint64_t unreadable() const { return unreadable_; }
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::uint32_t identity = 0;
    CodeId code = 0;
    std::uint8_t attempts_left = 0;  // 0: read, or given up
  };
  std::unordered_map<std::uint64_t, Entry> entries_;  // by address
  std::vector<CodeRequest> wanted_;                   // scratch
  std::uint64_t unreadable_ = 0;
};

}  // namespace dynprof
