// Who waited for torch's compile lock and for Inductor's file locks, and what the others did meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 10;
// Pairs of a wait and a compile that are looked at.
constexpr std::size_t kMaxPairs = 20'000'000;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// "4243 (worker_1)".
std::string thread_text(const Tables& tables, const std::vector<std::string>& commands,
                        std::int32_t pid, std::int32_t tid) {
  for (ThreadId id = 0; id < tables.threads.size(); ++id)
    if (tables.threads[id].pid == pid && tables.threads[id].tid == tid)
      return fmt::format("{} ({})", tid, cut(commands[id], 15));
  return std::to_string(tid);
}

// Of one waiter for one holder.
struct LockWait {
  std::uint64_t ns = 0;
  std::int32_t waiter = 0;            // a thread, or a process for file locks
  CompileIndex compile = kNoCompile;  // compile lock: what the holder compiled
  std::int32_t other = 0;             // file lock: the process that alone compiled; 0: not known
};

template <class Text>
void append(std::string& out, const char* title, std::vector<LockWait> waits, const Text& text) {
  std::stable_sort(waits.begin(), waits.end(),
                   [](const LockWait& a, const LockWait& b) { return a.ns > b.ns; });
  for (std::size_t i = 0; i < std::min(waits.size(), kMaxRows); ++i)
    append_item(out, title, text(waits[i]), 2);
  if (waits.size() > kMaxRows)
    append_comment(out, fmt::format("{} more, each less", grouped(waits.size() - kMaxRows)));
}

void append_compile_locks(std::string& out, const Selection& selection) {
  const Attribution& attribution = selection.attribution();
  const Tables& tables = selection.tables();
  const std::vector<std::string> commands = thread_commands(tables);
  std::vector<LockWait> waits;
  for (CompileIndex compile : selection.compiles) {
    if (attribution.compiles()[compile].thread == kNoThread) continue;
    for (const LockWaiter& waiter : selection.analysis.lines().waiters(compile))
      waits.push_back({waiter.ns, waiter.tid, compile});
  }
  append(out, "compile lock", std::move(waits), [&](const LockWait& wait) {
    const Compile& of = attribution.compiles()[wait.compile];
    return fmt::format("thread {} waited {:.2f} s for thread {}, which compiled {}",
                       thread_text(tables, commands, of.pid, wait.waiter), seconds(wait.ns),
                       thread_text(tables, commands, of.pid, tables.threads[of.thread].tid),
                       attribution.label(wait.compile));
  });
}

// Processes other than `pid` that compiled for at least half of the time.
std::set<std::int32_t> compiling_meanwhile(const Selection& selection, std::int32_t pid,
                                           std::uint64_t begin_ns, std::uint64_t end_ns) {
  std::map<std::int32_t, std::uint64_t> sums;
  const std::uint64_t period_ns = selection.attribution().recording().meta().period_ns;
  for (const Compile& compile : selection.attribution().compiles()) {
    if (compile.pid == pid || compile.first_ns == 0) continue;
    const std::uint64_t from = std::max(begin_ns, compile.first_ns);
    const std::uint64_t to = std::min(end_ns, compile.first_ns + compile.wall_ns(period_ns));
    if (from < to) sums[compile.pid] += to - from;
  }
  std::set<std::int32_t> pids;
  for (const auto& [other, ns] : sums)
    if (2 * ns >= end_ns - begin_ns) pids.insert(other);
  return pids;
}

// No recording says who has a file's lock: named is who alone compiled meanwhile.
void append_file_locks(std::string& out, const Selection& selection) {
  const Tables& tables = selection.tables();
  const WaitMeanings& meanings = selection.analysis.meanings();
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> sums;  // by pid, and other or 0
  std::size_t pairs = 0;
  for (const Wait& wait : tables.waits) {
    if (meanings.of(wait) != WaitMeaning::kFileLock) continue;
    const std::int32_t pid = tables.threads[wait.thread].pid;
    std::set<std::int32_t> others;
    if (pairs < kMaxPairs)
      others = compiling_meanwhile(selection, pid, wait.begin_ns, wait.end_ns());
    pairs += selection.attribution().compiles().size();
    sums[{pid, others.size() == 1 ? *others.begin() : 0}] += wait.length_ns - wait.runnable_ns;
  }
  std::vector<LockWait> waits;
  for (const auto& [who, ns] : sums) waits.push_back({ns, who.first, kNoCompile, who.second});
  append(out, "file lock", std::move(waits), [](const LockWait& wait) {
    const std::string text =
        fmt::format("process {} waited {:.2f} s", wait.waiter, seconds(wait.ns));
    return wait.other == 0 ? text + "; which process held it is not known"
                           : text + fmt::format(" while process {} alone compiled", wait.other);
  });
}

}  // namespace

void append_lock_waits(std::string& out, const Selection& selection) {
  append_compile_locks(out, selection);
  if (selection.options.compiles.empty()) append_file_locks(out, selection);
}

}  // namespace dynprof
