#include "user/symbols/perf_map.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "symbolizer/symbols/demangle.h"
#include "user/target/process.h"
#include "user/target/safe_open.h"
#include "user/target/target_rights.h"

namespace dynprof {
namespace {

bool take_hex(std::string_view& line, std::uint64_t& value) {
  if (line.starts_with("0x")) line.remove_prefix(2);
  auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), value, 16);
  const auto used = static_cast<std::size_t>(end - line.data());
  if (failure != std::errc() || used >= line.size() || line[used] != ' ') return false;
  line.remove_prefix(used + 1);
  return true;
}

}  // namespace

UniqueFd open_perf_map(pid_t pid) {
  const UniqueFd root = open_root_of(pid);
  const auto rights = TargetRights::of(pid);
  const std::vector<pid_t> ids = namespace_ids(pid, pid);
  if (!root || !rights || ids.empty()) return {};
  const std::string path = fmt::format("/tmp/perf-{}.map", ids.back());
  if (!check_server_below(root.get(), path, pid)) return {};
  auto file = open_with(*rights, [&] { return open_below(root.get(), path, pid); });
  struct stat status {};
  if (!file || ::fstat(file->get(), &status) != 0) return {};
  if (status.st_uid != rights->uid && status.st_uid != 0) return {};
  return *std::move(file);
}

PerfMap PerfMap::read(int fd) {
  std::string text;
  char part[1 << 16];
  while (text.size() < kMaxBytes) {
    const ssize_t got = ::pread(fd, part, sizeof part, static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part, static_cast<std::size_t>(got));
  }
  return parse(text);
}

PerfMap PerfMap::parse(std::string_view text) {
  PerfMap map;
  for (std::uint32_t number = 0; map.entries_.size() < kMaxEntries; ++number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // the rest is half written
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    Entry entry;
    entry.line = number;
    if (!take_hex(line, entry.start) || !take_hex(line, entry.size)) continue;
    if (entry.size == 0 || line.empty() || entry.start + entry.size < entry.start) continue;
    entry.name = line.substr(0, kMaxSymbolBytes);
    map.entries_.push_back(std::move(entry));
  }
  std::sort(map.entries_.begin(), map.entries_.end(), [](const Entry& a, const Entry& b) {
    return a.start != b.start ? a.start < b.start : a.line < b.line;
  });
  return map;
}

std::optional<std::string> PerfMap::find(std::uint64_t address) const {
  auto after =
      std::upper_bound(entries_.begin(), entries_.end(), address,
                       [](std::uint64_t value, const Entry& entry) { return value < entry.start; });
  // Code is freed and its place used again: of lines that overlap the latest holds.
  const Entry* found = nullptr;
  for (int looked = 0; after != entries_.begin() && looked < 16; ++looked) {
    --after;
    if (address - after->start >= after->size) continue;
    if (found == nullptr || after->line > found->line) found = &*after;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

}  // namespace dynprof
