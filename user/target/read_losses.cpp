#include "user/target/read_losses.h"

#include <fmt/format.h>

namespace dynprof {
namespace {

std::string sentence(ReadLoss what, const std::string& process) {
  switch (what) {
    case ReadLoss::kFileCut:
      return fmt::format(
          "files that {} maps are too large or too slow to be read whole: some of its native "
          "stacks "
          "are cut, or have no names",
          process);
    case ReadLoss::kFileUntrusted:
      return fmt::format(
          "files that {} maps or names are not opened: another user serves their file system "
          "(FUSE)",
          process);
    case ReadLoss::kFramesFull:
      return fmt::format(
          "{} has native frames at too many addresses: the later ones are known by their file only",
          process);
    case ReadLoss::kMemoryStuck:
      return fmt::format(
          "reading the memory of {} did not return: it is no longer read, and its new functions "
          "have no names",
          process);
  }
  return {};
}

}  // namespace

ReadLosses& ReadLosses::of_program() {
  static ReadLosses losses;
  return losses;
}

void ReadLosses::add(ReadLoss what, pid_t pid) {
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(what)];
  if (noted_.size() >= kMaxNotes || !noted_.emplace(what, pid).second) return;
  notes_.push_back(sentence(what, pid == 0 ? "a process" : fmt::format("process {}", pid)));
}

std::uint64_t ReadLosses::count(ReadLoss what) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<std::size_t>(what)];
}

std::map<std::string, std::uint64_t> ReadLosses::named() const {
  static constexpr std::array<const char*, kReadLossCount> kNames = {
#define DYNPROF_READ_NAME(id, name, sentence) name,
      DYNPROF_READ_COUNTERS(DYNPROF_READ_NAME)
#undef DYNPROF_READ_NAME
  };
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::uint64_t> named;
  for (std::size_t i = 0; i < kReadLossCount; ++i)
    if (counts_[i] != 0) named.emplace(kNames[i], counts_[i]);
  return named;
}

std::string ReadLosses::take_note() {
  const std::lock_guard lock(mutex_);
  if (notes_.empty()) return {};
  std::string first = std::move(notes_.front());
  notes_.pop_front();
  return first;
}

}  // namespace dynprof
