// Unwind tables kept on disk, one file per build-id: DIRECTORY/unwind/<build-id>.dpu. Only for files
// with a build-id, and a table is used only if its fingerprint is that of the file at hand: the
// build-id alone would let one file pose as another. Written as root, so: only directories of this user,
// no links, a new file renamed into place. Safe to use from several threads and processes.
//
// File: TableHeader (table_cache.cpp), then the rows. Little endian, of this machine alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof {

inline constexpr const char* kDefaultCacheDirectory = "/var/cache/dynprof-bpf";

struct TableCacheLimits {
  std::size_t max_files = 1000;
  std::uint64_t max_bytes = 512ULL << 20;
  // Smaller tables are made faster than they are found.
  std::size_t min_rows = 4096;
};

class TableCache {
 public:
  // Creates missing directories, mode 0700. Refuses one that belongs to another user, that
  // others may write to, or that is a link. The error is one line; everything works without a cache.
  static Result<std::unique_ptr<TableCache>> open(const std::string& directory,
                                                  TableCacheLimits limits = {});

  // nullopt: not there, damaged or of another file. What is damaged is removed.
  std::optional<UnwindTable> load(const UnwindInput& input) const;

  // Nothing is done for a table that is too small or has no build-id. The oldest files (by their last
  // use) go when there are too many.
  Result<void> store(const UnwindInput& input, const UnwindTable& table);

 private:
  TableCache() = default;
  std::optional<UnwindTable> load_file(int file, const UnwindInput& input) const;
  void evict();

  UniqueFd directory_;
  TableCacheLimits limits_;
  std::mutex evicting_;
};

// From the cache, else built and stored. `cache` may be null; why nothing was stored is put into
// `cache_problem`.
Result<UnwindTable> load_or_build(const ByteSource& file, const UnwindOptions& options,
                                  TableCache* cache, std::string* cache_problem = nullptr);

}  // namespace dynprof
