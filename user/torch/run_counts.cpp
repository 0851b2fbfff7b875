#include "user/torch/run_counts.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dynprof {
namespace {

constexpr std::uint64_t kWriteNs = 10'000'000'000;

std::uint64_t read(const __u64& number) { return __atomic_load_n(&number, __ATOMIC_RELAXED); }

// The BPF programs change it meanwhile.
dp_region_count read(const dp_region_count& from) {
  return {.key = from.key,
          .calls = read(from.calls),
          .timed = read(from.timed),
          .time_ns = read(from.time_ns),
          .nested_ns = read(from.nested_ns),
          .lookups = read(from.lookups),
          .lookup_ns = read(from.lookup_ns)};
}

}  // namespace

std::string region_name(const dp_region_key& key) {
  return {key.name, strnlen(key.name, sizeof key.name)};
}

void RunCounts::begin(pid_t pid, std::uint64_t now_ns) {
  pid_ = pid;
  begin_ns_ = now_ns;
  more_.clear();
  find_new();
  const auto counts = kernel_.region_counts();
  for (Entry& entry : entries_) {
    entry.written = read(counts[entry.index]);
    entry.described = false;
  }
}

void RunCounts::find_new() {
  const auto counts = kernel_.region_counts();
  auto look = [&](std::size_t index) {
    const auto pid = static_cast<pid_t>(__atomic_load_n(&counts[index].key.pid, __ATOMIC_ACQUIRE));
    if (pid == pid_) entries_.push_back({.index = index, .written = {}, .region = {}});
    return pid != 0;
  };
  std::erase_if(unfilled_, look);
  for (; seen_ < counts.size(); ++seen_)
    if (!look(seen_)) unfilled_.push_back(seen_);
}

// While what runs still exists. True: a region is new.
bool RunCounts::look(const Describe& describe) {
  find_new();
  bool found = false;
  for (Entry& entry : entries_) {
    const dp_region_count& count = kernel_.region_counts()[entry.index];
    if (entry.described || read(count.calls) == entry.written.calls) continue;
    entry.region = describe(count.key);
    entry.described = true;
    found |= !entry.region.name.empty();
  }
  return found;
}

void RunCounts::tick(std::uint64_t now_ns, const Describe& describe, RecordingWriter& writer) {
  if (begin_ns_ == 0 || now_ns < begin_ns_) return;
  if (look(describe) || now_ns >= begin_ns_ + kWriteNs) write(now_ns, RunsThen::kCounted, writer);
}

void RunCounts::lengths_end(std::uint64_t time_ns, const Describe& describe,
                            RecordingWriter& writer) {
  if (begin_ns_ == 0) return;
  look(describe);
  write(std::max(time_ns, begin_ns_), RunsThen::kNotTimed, writer);
}

void RunCounts::end(std::uint64_t time_ns, RunsThen then, const Describe& describe,
                    RecordingWriter& writer) {
  if (begin_ns_ == 0) return;
  look(describe);
  write(std::max(time_ns, begin_ns_), then, writer);
  begin_ns_ = 0;
}

void RunCounts::write(std::uint64_t end_ns, RunsThen then, RecordingWriter& writer) {
  const std::uint64_t begin_ns = std::exchange(begin_ns_, end_ns);
  writer.region_runs({.begin_ns = begin_ns, .end_ns = end_ns, .pid = pid_, .then = then});
  const auto counts = kernel_.region_counts();
  for (Entry& entry : entries_) {
    const dp_region_count now = read(counts[entry.index]);
    const dp_region_count before = std::exchange(entry.written, now);
    if (entry.region.name.empty() || (now.calls == before.calls && now.timed == before.timed))
      continue;
    writer.region_runs({.begin_ns = begin_ns,
                        .end_ns = end_ns,
                        .pid = pid_,
                        .name = writer.string(entry.region.name),
                        .code = entry.region.code,
                        .calls = now.calls - before.calls,
                        .timed = now.timed - before.timed,
                        .time_ns = now.time_ns - before.time_ns,
                        .nested_ns = now.nested_ns - before.nested_ns,
                        .lookups = now.lookups - before.lookups,
                        .lookup_ns = now.lookup_ns - before.lookup_ns});
  }
  for (const auto& [name, calls] : std::exchange(more_, {}))
    writer.region_runs({.begin_ns = begin_ns,
                        .end_ns = end_ns,
                        .pid = pid_,
                        .name = writer.string(name),
                        .calls = calls});
}

}  // namespace dynprof
