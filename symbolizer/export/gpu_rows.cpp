#include "symbolizer/export/gpu_rows.h"

#include <string>
#include <string_view>

#include "symbolizer/export/display.h"
#include "symbolizer/export/gpu_trace.h"
#include "symbolizer/export/trace_metadata.h"

namespace dynprof {
namespace {

// Kineto's: behind all processes of the host. Its GPU 0 to 15 are pid 0 to 15.
constexpr std::int64_t kSortBase = 5'000'000;

}  // namespace

void write_gpu_rows(TraceShared& shared, TraceFile& file) {
  if (shared.gpu.items().empty()) return;
  JsonWriter& json = file.json();
  const GpuRows rows(shared, file);
  std::set<std::int32_t> named;
  for (const auto& [pid, tid] : rows.rows()) {
    if (named.insert(pid).second) {
      const std::int32_t device = pid % kDevicesPerProcess;
      const std::int32_t process = rows.process_of(pid);
      std::string_view comm;
      for (const Process& one : shared.tables.processes)
        if (one.pid == process) comm = shared.tables.strings[one.comm];
      std::string label = "GPU " + std::to_string(device);
      if (pid >= kDevicesPerProcess) label += " (pid " + std::to_string(process) + ')';
      write_metadata(json, "process_name", pid, 0, "name",
                     comm.empty() ? "process " + std::to_string(process) : cap_text(comm));
      write_metadata(json, "process_labels", pid, 0, "labels", label);
      write_metadata(json, "process_sort_index", pid, 0, "sort_index", kSortBase + pid);
    }
    const bool sync = tid >= kSyncRowBase;
    std::string name =
        "stream " + std::to_string(sync ? tid - kSyncRowBase : tid) + (sync ? " (sync)" : " ");
    write_metadata(json, "thread_name", pid, tid, "name", name);
    write_metadata(json, "thread_sort_index", pid, tid, "sort_index", tid);
  }
}

}  // namespace dynprof
