#include "user/stacks/native_worker.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "user/target/clock.h"
#include "user/target/process.h"
#include "user/target/safe_open.h"

namespace dynprof {

void NativeWorker::problem(std::string sentence) {
  if (told_.insert(sentence).second) problems_.push_back(std::move(sentence));
}

std::string NativeWorker::take_problem() {
  if (problems_.empty()) return {};
  std::string first = std::move(problems_.front());
  problems_.erase(problems_.begin());
  return first;
}

bool NativeWorker::request(pid_t pid, const CodeMapping& code, std::uint64_t id) {
  TableRequest request;
  request.id = id;
  request.pid = pid;
  if (code.vdso) {
    auto image = read_vdso(pid, code.mapping);
    if (!image) return false;
    request.image = *std::move(image);
  } else {
    auto file = open_mapped_file(pid, code.mapping);
    if (!file) return false;
    request.file = *std::move(file);
    request.root = open_root_of(pid);
    request.path = code.mapping.path;
  }
  return pool_.submit(request);
}

NativeWorker::Table* NativeWorker::table_for(pid_t pid, const CodeMapping& code) {
  const std::string& key = code.file->key;
  if (auto known = tables_.find(key); known != tables_.end()) {
    if (known->second.cut && known->second.pid != pid) ask_again(pid, code, known->second);
    return &known->second;
  }
  if (free_slots_.empty() && next_slot_ >= DP_MAX_UNWIND_TABLES) {
    problem("too many files are mapped: native stacks are cut in the latest of them");
    return nullptr;
  }
  if (auto share = shares_.find(pid);
      share != shares_.end() && share->second.tables >= DP_MAX_UNWIND_TABLES / kShares) {
    problem(fmt::format(
        "process {} maps too many files: its native stacks are cut in the latest of them", pid));
    return nullptr;
  }
  const std::uint32_t serial = next_serial_;
  if (!request(pid, code, serial)) return nullptr;
  ++next_serial_;
  Table table;
  table.pid = pid;
  table.serial = serial;
  ++shares_[pid].tables;
  if (free_slots_.empty()) {
    table.slot = next_slot_++;
  } else {
    table.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  requested_.emplace(serial, key);
  return &tables_.emplace(key, table).first->second;
}

void NativeWorker::ask_again(pid_t pid, const CodeMapping& code, Table& table) {
  if (!request(pid, code, next_serial_)) return;
  if (auto share = shares_.find(table.pid); share != shares_.end() && --share->second.tables == 0)
    shares_.erase(share);
  ++shares_[pid].tables;
  table.pid = pid;
  table.cut = false;
  table.serial = next_serial_++;
  requested_.emplace(table.serial, code.file->key);
}

dp_native_mapping NativeWorker::entry_for(pid_t pid, const CodeMapping& code, Published& into) {
  dp_native_mapping entry = {};
  entry.start = code.mapping.start;
  entry.end = code.mapping.end;
  if (!code.bias || !code.file->problem.empty()) return entry;
  entry.bias = *code.bias;
  Table* table = table_for(pid, code);
  if (table == nullptr) return entry;
  if (into.tables.insert(code.file->key).second) ++table->spaces;
  entry.table = table->slot;
  entry.serial = table->serial;
  return entry;
}

void NativeWorker::release(const std::string& key) {
  auto at = tables_.find(key);
  if (at == tables_.end() || --at->second.spaces > 0) return;
  at->second.idle_since_ns = monotonic_ns();
}

void NativeWorker::make_ready(std::span<const std::uint32_t> slots) {
  if (auto made = maps_.make_ready(slots); !made)
    problem(fmt::format("{}; native stacks are incomplete", made.error().what));
}

void NativeWorker::forget_idle() {
  const std::uint64_t now = monotonic_ns();
  // When room is short they go at once.
  const bool short_of_room = bytes_ > max_bytes_ / 2 || tables_.size() > DP_MAX_UNWIND_TABLES / 2;
  const std::uint64_t keep = short_of_room ? 0 : kKeepIdleNs;
  std::vector<std::uint32_t> dropped;
  for (auto at = tables_.begin(); at != tables_.end();) {
    const Table& table = at->second;
    if (table.spaces > 0 || now < table.idle_since_ns + keep) {
      ++at;
      continue;
    }
    dropped.push_back(table.slot);
    bytes_ -= table.bytes;
    if (auto share = shares_.find(table.pid); share != shares_.end()) {
      share->second.bytes -= table.bytes;
      if (--share->second.tables == 0) shares_.erase(share);
    }
    at = tables_.erase(at);
  }
  maps_.clear_tables(dropped);
  free_slots_.insert(free_slots_.end(), dropped.begin(), dropped.end());
}

std::uint64_t NativeWorker::look(NativeSpace& space) {
  Published& known = spaces_[space.slot];
  const std::uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  auto read = files_.read(space.pid);
  if (!read) return kSlowestNs;  // it is gone
  if (read->left_out || read->mappings.size() > DP_MAX_NATIVE_MAPPINGS)
    problem("a process has too many mappings: native stacks are cut in the last of them");
  Published fresh;
  for (const CodeMapping& code : read->mappings) {
    if (fresh.mappings.size() >= DP_MAX_NATIVE_MAPPINGS) break;
    fresh.mappings.push_back(entry_for(space.pid, code, fresh));
  }
  const bool same = fresh.mappings.size() == known.mappings.size() &&
                    (fresh.mappings.empty() ||
                     std::memcmp(fresh.mappings.data(), known.mappings.data(),
                                 fresh.mappings.size() * sizeof(dp_native_mapping)) == 0);
  // At most a tenth of a CPU. By CPU time: where CPUs are busy, a reading takes far longer by the clock, and new
  // programs are not known for as long.
  const std::uint64_t soon = std::max(kSoonNs, 10 * (clock_ns(CLOCK_THREAD_CPUTIME_ID) - began));
  fresh.backoff_ns = same ? std::min(known.backoff_ns * 2, kSlowestNs) : soon;
  if (!same) {
    auto set = maps_.set_space(space.slot, space.owner, next_content_++, fresh.mappings);
    if (!set) problem(fmt::format("{}; native stacks are incomplete", set.error().what));
    std::vector<Mapping> mappings;
    for (CodeMapping& code : read->mappings) mappings.push_back(std::move(code.mapping));
    space.set_mappings(std::move(mappings));
    space.version.fetch_add(1, std::memory_order_release);
  }
  // The new users are counted already: tables of both never go in between.
  std::swap(known, fresh);
  for (const std::string& key : fresh.tables) release(key);
  return known.backoff_ns;
}

void NativeWorker::drop(std::uint32_t slot) {
  auto at = spaces_.find(slot);
  if (at == spaces_.end()) return;
  maps_.clear_space(slot);
  for (const std::string& key : at->second.tables) release(key);
  spaces_.erase(at);
}

void NativeWorker::take_tables() {
  std::vector<TableResult> results;
  std::vector<NativeMaps::NewTable> fresh;
  std::size_t waiting = 0;
  while (waiting < kMaxBatchBytes) {
    auto result = pool_.take();
    if (!result) break;
    auto asked = requested_.find(result->id);
    if (asked == requested_.end()) continue;
    auto at = tables_.find(asked->second);
    requested_.erase(asked);
    if (!result->cache_problem.empty())
      problem(fmt::format("unwind tables are not kept: {}", result->cache_problem));
    // Its last user may have gone meanwhile, or the file come again.
    if (at == tables_.end() || at->second.serial != result->id) continue;
    if (!result->table) {
      at->second.cut = result->cut;
      continue;
    }
    const std::size_t bytes = NativeMaps::bytes_of(*result->table);
    if (bytes_ + bytes > max_bytes_) {
      problem("unwind tables take too much memory: native stacks are cut in the latest files");
      continue;
    }
    Share& share = shares_[at->second.pid];
    if (share.bytes + bytes > max_bytes_ / kShares) {
      problem(
          fmt::format("unwind tables of process {} take too much memory: its native stacks are cut "
                      "in the latest files",
                      at->second.pid));
      at->second.cut = true;
      continue;
    }
    share.bytes += bytes;
    at->second.bytes = bytes;
    bytes_ += bytes;
    waiting += bytes;
    fresh.push_back({at->second.slot, at->second.serial, nullptr});
    results.push_back(*std::move(result));
  }
  for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i].table = &*results[i].table;
  if (auto set = maps_.set_tables(fresh); !set)
    problem(fmt::format("{}; native stacks are incomplete", set.error().what));
}

}  // namespace dynprof
