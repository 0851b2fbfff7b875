#include "user/stacks/eval_ranges.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "user/symbols/object_symbols.h"
#include "user/target/known_images.h"
#include "user/target/process.h"
#include "user/target/safe_open.h"

namespace dynprof {

namespace {

// Offsets in the file of each part of the loop, of files that were searched: thousands of processes run one interpreter.
class SearchedFiles {
 public:
  using Parts = std::vector<ElfSymbols::Range>;
  using Key = std::tuple<KnownImages::Key, dev_t, ino_t>;  // the file, and the root of its process

  static SearchedFiles& of_program() {
    static SearchedFiles files;
    return files;
  }
  std::optional<Parts> find(const Key& file) {
    const std::lock_guard lock(mutex_);
    const auto at = parts_.find(file);
    return at == parts_.end() ? std::nullopt : std::optional(at->second);
  }
  void add(const Key& file, const Parts& parts) {
    const std::lock_guard lock(mutex_);
    if (parts_.size() >= kMaxFiles) parts_.clear();
    parts_.emplace(file, parts);
  }

 private:
  static constexpr std::size_t kMaxFiles = 256;
  std::mutex mutex_;
  std::map<Key, Parts> parts_;
};

// Nothing: the file cannot be read.
std::optional<SearchedFiles::Parts> parts_in(pid_t pid, const Mapping& mapping) {
  auto file = open_mapped_file(pid, mapping);
  if (!file) return std::nullopt;
  // The symbols may be in a debug file, which is looked for below that root.
  const UniqueFd root = open_root_of(pid);
  struct stat of_root {};
  const auto image = KnownImages::key_of(file->get(), false);
  std::optional<SearchedFiles::Key> key;
  if (image && root && ::fstat(root.get(), &of_root) == 0)
    key.emplace(*image, of_root.st_dev, of_root.st_ino);
  if (key)
    if (auto known = SearchedFiles::of_program().find(*key)) return known;
  auto source = ByteSource::of_file(*std::move(file));
  if (!source) return std::nullopt;
  ReadBudget budget(1ULL << 30, std::chrono::milliseconds(5000));
  source->pay_from(&budget);
  auto symbols = ObjectSymbols::read(*std::move(source), root.get(), mapping.path);
  if (!symbols) return std::nullopt;
  auto parts = symbols->parts_of("_PyEval_EvalFrameDefault");
  if (key && !budget.refused()) SearchedFiles::of_program().add(*key, parts);
  return parts;
}

}  // namespace

EvalRanges::EvalRanges(std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges)
    : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end());
}

bool EvalRanges::contains(std::uint64_t address) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return address >= range.first && address < range.second;
  });
}

std::optional<EvalRanges> EvalRanges::find(pid_t pid, const std::string& image_path) {
  auto mappings = read_mappings(pid);
  if (!mappings || mappings->empty()) return std::nullopt;
  std::vector<ElfSymbols::Range> parts;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const Mapping& mapping : *mappings) {
    if (!mapping.executable || mapping.path != image_path) continue;
    if (parts.empty()) {
      auto found = parts_in(pid, mapping);
      if (!found) return std::nullopt;
      parts = *std::move(found);
    }
    const std::uint64_t mapped_end = mapping.offset + (mapping.end - mapping.start);
    for (const ElfSymbols::Range& part : parts) {
      const std::uint64_t begin = std::max(part.begin, mapping.offset);
      const std::uint64_t end = std::min(part.end, mapped_end);
      if (begin >= end) continue;
      ranges.emplace_back(mapping.start + (begin - mapping.offset),
                          mapping.start + (end - mapping.offset));
    }
  }
  return EvalRanges(std::move(ranges));
}

}  // namespace dynprof
