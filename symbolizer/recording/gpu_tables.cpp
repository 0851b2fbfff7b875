// The part of TableBuilder that is about GPU launches and records.
#include <algorithm>

#include "symbolizer/recording/table_builder.h"

namespace dynprof::recording {

// A loop of the same kernels compresses to half a byte for each, far below what other tables do. Most of
// their memory is allowed for beforehand: it cannot be more than a payload's rows take, and so is bounded
// by the expansion of payloads. A gap still has to fit what is left.
bool TableBuilder::admit_gpu_rows(const ChunkHeader& header, std::size_t row_bytes,
                                  std::uint32_t smallest, Damage& damage) {
  if (header.count > header.raw_bytes / smallest) {
    ++damage.malformed[header.kind];
    return false;
  }
  memory_left_ += std::uint64_t{header.count} * row_bytes / 16 * 15;
  return true;
}

void TableBuilder::finish_gpu(Damage& damage) {
  // A launch keeps its correlation id whatever else is lost, so that what it started has its call.
  std::erase_if(tables_.gpu_launches, [&](GpuLaunch& launch) {
    if (launch.stack >= tables_.stacks.size()) launch.stack = lost_stack();
    if (launch.context >= tables_.contexts.size()) launch.context = lost_context();
    return launch.thread >= tables_.threads.size();
  });
  std::stable_sort(tables_.gpu_launches.begin(), tables_.gpu_launches.end(),
                   [](const GpuLaunch& a, const GpuLaunch& b) { return a.time_ns < b.time_ns; });
  for (GpuRecord& row : tables_.gpu_records) {
    if (repair_string(row.record.name)) ++damage.lost_entries[ChunkKind::kStrings];
  }
}

}  // namespace dynprof::recording
