#include "symbolizer/attribution/compile_lines.h"

#include <algorithm>
#include <numeric>

#include "symbolizer/attribution/torch_states.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxLines = 4096;  // of one compile

}  // namespace

CompileIndex compile_open_at(const Attribution& attribution, std::int32_t pid, std::int32_t tid,
                             std::uint64_t time_ns, const TraceId& id) {
  const Tables& tables = attribution.recording().tables();
  const std::vector<Compile>& compiles = attribution.compiles();
  CompileIndex best = kNoCompile;
  for (CompileIndex i = 0; i < compiles.size(); ++i) {
    const Compile& compile = compiles[i];
    if (compile.thread == kNoThread || compile.before_attach) continue;
    if (compile.first_ns > time_ns || compile.last_ns < time_ns) continue;
    const Thread& thread = tables.threads[compile.thread];
    if (thread.pid != pid || thread.tid != tid || (is_valid(id) && compile.id != id)) continue;
    if (best == kNoCompile || compiles[best].first_ns <= compile.first_ns) best = i;
  }
  return best;
}

std::uint64_t LineTime::sum_ns() const {
  return std::accumulate(ns.begin(), ns.end(), std::uint64_t{0});
}

CompileLines::CompileLines(const Attribution& attribution)
    : lines_(attribution.compiles().size()), waiters_(attribution.compiles().size()) {
  const Tables& tables = attribution.recording().tables();
  for (const LineSample& sample : tables.line_samples) add(attribution, sample);
  for (const LockSample& sample : tables.lock_samples) add(attribution, sample);
  for (std::vector<LineTime>& lines : lines_) {
    std::stable_sort(lines.begin(), lines.end(),
                     [](const LineTime& a, const LineTime& b) { return a.sum_ns() > b.sum_ns(); });
  }
  for (std::vector<LockWaiter>& waiters : waiters_) {
    std::stable_sort(waiters.begin(), waiters.end(),
                     [](const LockWaiter& a, const LockWaiter& b) { return a.ns > b.ns; });
  }
}

void CompileLines::add(const Attribution& attribution, const LineSample& sample) {
  const Tables& tables = attribution.recording().tables();
  const TraceId id = open_compile(tables.contexts[sample.context].torch);
  const Thread& thread = tables.threads[sample.thread];
  if (sample.weight_ns == 0 || !is_valid(id)) return;
  CompileIndex compile = compile_open_at(attribution, thread.pid, thread.tid, sample.time_ns, id);
  if (compile == kNoCompile) return;
  auto text = [&](StringId string) {
    return valid_utf8(tables.strings[string].substr(0, kMaxText));
  };
  const std::uint32_t number = sample.line.line;
  LineTime line{text(sample.line.file), number <= INT32_MAX ? static_cast<std::int32_t>(number) : 0,
                text(sample.line.function)};
  std::vector<LineTime>& lines = lines_[compile];
  auto known = std::find_if(lines.begin(), lines.end(), [&](const LineTime& one) {
    return one.line == line.line && one.file == line.file && one.function == line.function;
  });
  if (known == lines.end()) {
    if (lines.size() == kMaxLines) return;
    known = lines.insert(lines.end(), std::move(line));
  }
  known->ns[static_cast<std::size_t>(sample.use) - 1] += sample.weight_ns;
}

const char* line_use_words(LineUse use) {
  switch (use) {
    case LineUse::kTracing:
      return "tracing";
    case LineUse::kGraphEnd:
      return "compiling the graph that ends at";
    case LineUse::kRetracing:
      return "tracing again";
    case LineUse::kLowering:
      return "lowering";
  }
  return "at";
}

void CompileLines::add(const Attribution& attribution, const LockSample& sample) {
  const Thread& thread = attribution.recording().tables().threads[sample.thread];
  CompileIndex holder =
      compile_open_at(attribution, thread.pid, sample.holder_tid, sample.time_ns, {});
  if (sample.weight_ns == 0 || holder == kNoCompile) return;
  std::vector<LockWaiter>& waiters = waiters_[holder];
  auto known = std::find_if(waiters.begin(), waiters.end(),
                            [&](const LockWaiter& one) { return one.tid == thread.tid; });
  if (known == waiters.end()) known = waiters.insert(waiters.end(), {thread.tid, 0});
  known->ns += sample.weight_ns;
}

}  // namespace dynprof
