// Everything that can be wrong with a recording, counted, with one sentence per kind.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "symbolizer/recording/format.h"

namespace dynprof::recording {

struct Damage {
  // Chunks, by kind.
  std::map<ChunkKind, std::uint64_t> bad_checksum;
  std::map<ChunkKind, std::uint64_t> malformed;
  std::map<ChunkKind, std::uint64_t> out_of_order;
  std::map<ChunkKind, std::uint64_t> too_large;   // beyond what tables may take in memory
  std::map<ChunkKind, std::uint64_t> unreadable;  // the disk gave an error
  std::map<ChunkKind, std::uint64_t> unknown;
  std::uint64_t missing_chunks = 0;  // by their sequence numbers

  std::uint64_t skipped_bytes = 0;  // between chunks
  std::uint64_t torn_bytes = 0;     // after the last whole chunk
  std::uint64_t bytes_after_end = 0;

  bool meta_lost = false;
  bool meta_from_trailer = false;
  bool trailer_lost = false;  // though the end mark is there

  std::map<ChunkKind, std::uint64_t> lost_entries;  // ids in use or skipped that nothing defines
  std::uint64_t deep_stacks = 0;
  std::uint64_t samples_lost = 0;
  std::uint64_t samples_partly_lost = 0;  // kept, with frames, thread or context unknown
  std::uint64_t samples_out_of_order = 0;

  std::vector<std::string> sentences() const;
};

}  // namespace dynprof::recording
