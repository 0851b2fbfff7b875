#include "symbolizer/export/memory_json.h"

#include <cmath>

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

Json bytes_or_null(std::uint64_t bytes) { return bytes == 0 ? Json(nullptr) : Json(bytes); }

}  // namespace

Json memory_json(const CompileMemory& memory) {
  const double gap_s = std::round(static_cast<double>(memory.longest_gap_ns) / 1e3) / 1e6;
  return {{"first_rss_bytes", bytes_or_null(memory.first_bytes)},
          {"peak_rss_bytes", bytes_or_null(memory.peak_bytes)},
          {"readings", memory.readings},
          {"longest_gap_s", memory.readings == 0 ? Json(nullptr) : Json(gap_s)},
          {"child_peak_rss_bytes", bytes_or_null(memory.child_bytes)},
          {"worker_peak_rss_bytes", bytes_or_null(memory.worker_bytes)}};
}

}  // namespace dynprof
