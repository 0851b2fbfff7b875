#include "user/generated/guard_reasons.h"

#include <algorithm>

namespace dynprof {
namespace {

constexpr std::size_t kBatch = 512;
constexpr std::uint64_t kMaxTexts = 8;  // of one guard: torch gives most guards one
constexpr std::size_t kMaxText = 8192;
constexpr std::size_t kMaxReasons = 8;  // of one guard's text: more than one says nothing anyway

// The user's line is empty where torch had no source: "#  # model.py:15 in scale".
void trim(std::string_view& text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '#')) text.remove_prefix(1);
}

}  // namespace

VerboseGuard split_verbose_guard(std::string_view text) {
  std::size_t hash = std::min(text.find('#'), text.size());
  std::string_view guard = text.substr(0, hash);
  std::string_view reason = text.substr(std::min(hash + 1, text.size()));
  while (!guard.empty() && guard.back() == ' ') guard.remove_suffix(1);
  trim(reason);
  return {std::string(guard), std::string(reason)};
}

void GuardReasons::read(PythonObjects& python, std::span<const std::uint64_t> lists,
                        const std::set<std::string>& guards) {
  if (guards.empty()) return;
  for (std::size_t first = 0; first < lists.size(); first += kBatch) {
    read_batch(python, lists.subspan(first, std::min(kBatch, lists.size() - first)), guards);
  }
}

void GuardReasons::read_batch(PythonObjects& python, std::span<const std::uint64_t> lists,
                              const std::set<std::string>& guards) {
  const PythonLayout& t = python.objects().layout();
  // ob_size and ob_item of each list, then the first items of the short ones.
  std::vector<std::uint64_t> heads(lists.size() * 2);
  std::vector<RemoteRange> ranges;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    auto size = std::span(heads).subspan(i * 2, 1);
    auto items = std::span(heads).subspan(i * 2 + 1, 1);
    ranges.push_back({lists[i] + t.object_size, std::as_writable_bytes(size)});
    ranges.push_back({lists[i] + t.list_items, std::as_writable_bytes(items)});
  }
  python.objects().memory().read_many(ranges);
  std::vector<std::uint64_t> items(lists.size() * kMaxTexts);
  ranges.clear();
  for (std::size_t i = 0; i < lists.size(); ++i) {
    std::uint64_t size = heads[i * 2];
    if (size == 0 || size > kMaxTexts || !plausible_pointer(heads[i * 2 + 1])) continue;
    auto into = std::span(items).subspan(i * kMaxTexts, size);
    ranges.push_back({heads[i * 2 + 1], std::as_writable_bytes(into)});
  }
  python.objects().memory().read_many(ranges);
  std::erase(items, 0U);
  for (const RemoteValue& value : python.values().values(items, kMaxText)) {
    if (value.kind == RemoteValue::Kind::kStr) note(value.text, guards);
  }
}

void GuardReasons::note(std::string_view text, const std::set<std::string>& guards) {
  if (text.find('#') == std::string_view::npos) return;
  VerboseGuard verbose = split_verbose_guard(text);
  if (verbose.reason.empty() || !guards.contains(verbose.guard)) return;
  std::set<std::string>& known = reasons_[verbose.guard];
  if (known.size() < kMaxReasons) known.insert(std::move(verbose.reason));
}

std::string GuardReasons::reason(const std::string& guard) const {
  auto found = reasons_.find(guard);
  if (found == reasons_.end() || found->second.size() != 1) return "";
  return *found->second.begin();
}

}  // namespace dynprof
