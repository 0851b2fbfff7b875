#include "symbolizer/attribution/compile_memory.h"

#include <algorithm>
#include <map>

namespace dynprof {
namespace {

using Readings = std::map<std::int32_t, std::vector<const MemorySample*>>;  // by pid, in time order

// Calls visit(reading) for those of a process in a time.
template <class Visit>
void for_each_in(const Readings& readings, std::int32_t pid, std::uint64_t begin_ns,
                 std::uint64_t end_ns, const Visit& visit) {
  const auto of = readings.find(pid);
  if (of == readings.end()) return;
  auto at = std::partition_point(of->second.begin(), of->second.end(),
                                 [&](const MemorySample* row) { return row->time_ns < begin_ns; });
  for (; at != of->second.end() && (*at)->time_ns <= end_ns; ++at) visit(**at);
}

}  // namespace

CompileMemories::CompileMemories(const Attribution& attribution, const ProcessTree& tree)
    : of_(attribution.compiles().size()) {
  const Tables& tables = attribution.recording().tables();
  Readings readings;
  for (const MemorySample& row : tables.memory_samples) readings[row.pid].push_back(&row);
  for (CompileIndex i = 0; i < of_.size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    CompileMemory& memory = of_[i];
    for (ProcessIndex child : tree.of(i))
      memory.child_bytes = std::max(memory.child_bytes, tree.all()[child].peak_bytes);
    if (compile.first_ns == 0 || compile.before_attach) continue;
    std::uint64_t before_ns = compile.first_ns;
    for_each_in(readings, compile.pid, compile.first_ns, compile.last_ns,
                [&](const MemorySample& row) {
                  if (memory.readings++ == 0) memory.first_bytes = row.bytes;
                  memory.peak_bytes = std::max(memory.peak_bytes, row.bytes);
                  memory.longest_gap_ns = std::max(memory.longest_gap_ns, row.time_ns - before_ns);
                  before_ns = row.time_ns;
                });
    if (memory.readings > 0)
      memory.longest_gap_ns =
          std::max(memory.longest_gap_ns, compile.last_ns - std::min(compile.last_ns, before_ns));
  }
  for (const WorkerShare& share : tree.worker_shares()) {
    if (share.compile >= of_.size()) continue;
    const Compile& compile = attribution.compiles()[share.compile];
    CompileMemory& memory = of_[share.compile];
    for_each_in(readings, tree.all()[share.process].pid, compile.first_ns, compile.last_ns,
                [&](const MemorySample& row) {
                  memory.worker_bytes = std::max(memory.worker_bytes, row.bytes);
                });
  }
}

}  // namespace dynprof
