#include "user/unwind_tables/table_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <type_traits>
#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/hash.h"

namespace dynprof {
namespace {

constexpr char kMagic[8] = {'D', 'P', 'U', 'N', 'W', 'I', 'N', 'D'};
// Grows whenever the rows, the header or what we make of the same file changes.
constexpr std::uint32_t kVersion = 2;
constexpr std::string_view kExtension = ".dpu";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::time_t kTemporaryLife = 3600;  // seconds; its writer is long gone
constexpr std::size_t kMaxEntries = 100'000;  // looked at in the directory

struct TableHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t rows;
  std::uint64_t seed;         // of fingerprint and checksum, drawn anew for each file
  std::uint64_t fingerprint;  // UnwindInput::fingerprint
  std::uint64_t base;
  UnwindStats stats;
  std::uint64_t checksum;  // of all before it and of the rows
};
static_assert(std::is_trivially_copyable_v<TableHeader>);
static_assert(std::has_unique_object_representations_v<TableHeader>);

std::string_view bytes_of(const void* data, std::size_t size) {
  return {static_cast<const char*>(data), size};
}

std::uint64_t checksum_of(const TableHeader& header, const std::vector<dp_unwind_row>& rows) {
  const std::uint64_t head =
      hash_bytes(bytes_of(&header, offsetof(TableHeader, checksum)), header.seed);
  return hash_bytes(bytes_of(rows.data(), rows.size() * sizeof rows[0]), head);
}

// What the kernel side and we rely on, whatever the checksum says.
bool well_formed(const std::vector<dp_unwind_row>& rows) {
  if (rows.empty() || dp_unwind_kind(rows.back().rule) != DP_CFA_NONE) return false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0 && rows[i].pc <= rows[i - 1].pc) return false;
    if (dp_unwind_kind(rows[i].rule) >= DP_CFA_KIND_COUNT) return false;
    if (dp_unwind_kind(rows[i].rule) == DP_CFA_UNSUPPORTED &&
        dp_unwind_argument(rows[i].rule) >= DP_UNWIND_REASON_COUNT) {
      return false;
    }
  }
  return true;
}

bool safe(const struct stat& status) {
  return status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

Result<UniqueFd> open_directory(int parent, const char* name, const std::string& shown) {
  if (::mkdirat(parent, name, 0700) != 0 && errno != EEXIST) {
    return errno_error(fmt::format("cannot create {}", shown));
  }
  UniqueFd directory(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) {
    if (errno == ENOTDIR || errno == ELOOP) {
      return error(fmt::format("{} is not a directory of its own (a link?)", shown));
    }
    return errno_error(fmt::format("cannot open {}", shown));
  }
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) return errno_error(shown);
  if (!safe(status)) {
    return error(fmt::format("{} belongs to another user or may be written by others", shown));
  }
  return directory;
}

std::string file_name(const UnwindInput& input) {
  return fmt::format("{}{}", input.layout.build_id, kExtension);
}

bool read_all(int file, void* into, std::size_t size, std::size_t offset) {
  auto* at = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t got = ::pread(file, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    offset += static_cast<std::size_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

struct CachedFile {
  std::string name;
  std::int64_t used_ns = 0;
  std::uint64_t bytes = 0;
};

}  // namespace

Result<std::unique_ptr<TableCache>> TableCache::open(const std::string& directory,
                                                     TableCacheLimits limits) {
  std::unique_ptr<TableCache> cache(new TableCache);
  cache->limits_ = limits;
  ASSIGN_OR_RETURN(UniqueFd parent, open_directory(AT_FDCWD, directory.c_str(), directory));
  ASSIGN_OR_RETURN(cache->directory_,
                   open_directory(parent.get(), "unwind", directory + "/unwind"));
  return cache;
}

std::optional<UnwindTable> TableCache::load_file(int file, const UnwindInput& input) const {
  struct stat status {};
  TableHeader header{};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || !safe(status)) return std::nullopt;
  if (!read_all(file, &header, sizeof header, 0)) return std::nullopt;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.version != kVersion ||
      header.rows > DP_UNWIND_MAX_ROWS ||
      static_cast<std::uint64_t>(status.st_size) !=
          sizeof header + std::uint64_t{header.rows} * sizeof(dp_unwind_row)) {
    return std::nullopt;
  }
  if (header.fingerprint != input.fingerprint(header.seed)) return std::nullopt;
  UnwindTable table;
  table.rows.resize(header.rows);
  if (!read_all(file, table.rows.data(), table.rows.size() * sizeof table.rows[0], sizeof header) ||
      checksum_of(header, table.rows) != header.checksum || !well_formed(table.rows)) {
    return std::nullopt;
  }
  table.build_id = input.layout.build_id;
  table.base = header.base;
  for (const ElfSegment& segment : input.layout.segments) {
    if (segment.executable) table.segments.push_back(segment);
  }
  table.stats = header.stats;
  table.from_cache = true;
  return table;
}

std::optional<UnwindTable> TableCache::load(const UnwindInput& input) const {
  if (input.layout.build_id.empty()) return std::nullopt;
  const std::string name = file_name(input);
  UniqueFd file(
      ::openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return std::nullopt;
  auto table = load_file(file.get(), input);
  if (table) {
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    ::futimens(file.get(), now);  // the order of eviction; without it the oldest by writing goes
  } else {
    ::unlinkat(directory_.get(), name.c_str(), 0);
  }
  return table;
}

Result<void> TableCache::store(const UnwindInput& input, const UnwindTable& table) {
  if (table.build_id.empty() || table.rows.size() < limits_.min_rows) return {};
  if (table.rows.size() * sizeof table.rows[0] > limits_.max_bytes) return {};
  TableHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.rows = static_cast<std::uint32_t>(table.rows.size());
  header.seed = random_seed();
  header.fingerprint = input.fingerprint(header.seed);
  header.base = table.base;
  header.stats = table.stats;
  header.checksum = checksum_of(header, table.rows);

  const std::string temporary = fmt::format("{}{:016x}", kTemporary, random_seed());
  ASSIGN_OR_RETURN(auto file, OutputFile::create(directory_.get(), temporary));
  file->write(bytes_of(&header, sizeof header));
  file->write(bytes_of(table.rows.data(), table.rows.size() * sizeof table.rows[0]));
  TRY(file->finish());
  if (::renameat(directory_.get(), temporary.c_str(), directory_.get(), file_name(input).c_str()) !=
      0) {
    Error problem = errno_error("cannot rename a table in the cache");
    ::unlinkat(directory_.get(), temporary.c_str(), 0);
    return problem;
  }
  evict();
  return {};
}

void TableCache::evict() {
  const std::lock_guard lock(evicting_);
  // A descriptor of its own: the position in the directory belongs to the open file.
  const int copy = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return;
  std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), &::closedir);
  if (!listing) {
    ::close(copy);
    return;
  }
  std::vector<CachedFile> files;
  std::uint64_t bytes = 0;
  for (std::size_t seen = 0; seen < kMaxEntries; ++seen) {
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    struct stat status {};
    if (::fstatat(directory_.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (name.starts_with(kTemporary)) {
      if (std::time(nullptr) - status.st_mtim.tv_sec > kTemporaryLife) {
        ::unlinkat(directory_.get(), entry->d_name, 0);
      }
    } else if (name.ends_with(kExtension)) {
      files.push_back({std::string(name),
                       std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
                       static_cast<std::uint64_t>(status.st_size)});
      bytes += files.back().bytes;
    }
  }
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used_ns < b.used_ns; });
  std::size_t count = files.size();
  for (const CachedFile& file : files) {
    if (count <= limits_.max_files && bytes <= limits_.max_bytes) break;
    ::unlinkat(directory_.get(), file.name.c_str(), 0);
    bytes -= file.bytes;
    --count;
  }
}

Result<UnwindTable> load_or_build(const ByteSource& file, const UnwindOptions& options,
                                  TableCache* cache, std::string* cache_problem) {
  ASSIGN_OR_RETURN(const UnwindInput input, read_unwind_input(file, options));
  if (cache != nullptr) {
    if (auto table = cache->load(input)) return *std::move(table);
  }
  ASSIGN_OR_RETURN(UnwindTable table, build_unwind_table(input, options));
  if (cache != nullptr) {
    const Result<void> stored = cache->store(input, table);
    if (!stored && cache_problem != nullptr) *cache_problem = stored.error().what;
  }
  return table;
}

}  // namespace dynprof
