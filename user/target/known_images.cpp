#include "user/target/known_images.h"

#include <sys/stat.h>

#include <utility>

namespace dynprof {
namespace {

// A process maps some tens to some hundreds of files, most of them the same ones as others do.
constexpr std::size_t kMaxImages = 4096;

std::int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

}  // namespace

std::optional<KnownImages::Key> KnownImages::key_of(int file, bool exported_only) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return std::nullopt;
  return Key{.device = info.st_dev,
             .inode = info.st_ino,
             .bytes = static_cast<std::uint64_t>(info.st_size),
             .written_ns = nanoseconds(info.st_mtim),
             .changed_ns = nanoseconds(info.st_ctim),
             .exported_only = exported_only};
}

KnownImage* KnownImages::find(const Key& key) {
  const auto place = images_.find(key);
  return place == images_.end() ? nullptr : &place->second;
}

const KnownImage& KnownImages::add(const Key& key, KnownImage image) {
  if (images_.size() >= kMaxImages) images_.clear();
  return images_.insert_or_assign(key, std::move(image)).first->second;
}

}  // namespace dynprof
