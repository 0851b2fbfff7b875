#include "symbolizer/export/triton_json.h"

#include <algorithm>
#include <utility>

#include "symbolizer/base/text.h"
#include "symbolizer/report/triton_rows.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxKernels = 1000;

Json seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

Json caller_json(const ResolvedFrames& frames, FrameId caller) {
  if (caller == 0) return nullptr;
  const ResolvedFrame& frame = frames[caller];
  return {{"function", valid_utf8(frame.function)},
          {"file", valid_utf8(frame.file)},
          {"line", frame.line}};
}

}  // namespace

Json triton_json(const Analysis& analysis) {
  const std::vector<TritonRow> rows = triton_rows(analysis);
  if (rows.empty()) return nullptr;
  Json kernels = Json::array();
  for (const TritonRow& row : rows) {
    if (kernels.size() == kMaxKernels) break;
    kernels.push_back(
        {{"process", row.pid},
         {"kernel", row.kernel.empty() ? Json(nullptr) : Json(valid_utf8(row.kernel))},
         {"caller", caller_json(analysis.attribution().frames(), row.caller)},
         {"compilations", row.compilations},
         {"stall_s", seconds(row.stall_ns)},
         {"longest_s", seconds(row.longest_ns)},
         {"passes_s", seconds(row.of(TritonStage::kPasses))},
         {"llvm_s", seconds(row.of(TritonStage::kLlvm))},
         {"assembler_s", seconds(row.of(TritonStage::kAssembler))},
         {"tuning_s", seconds(row.of(TritonStage::kTuning))}});
  }
  return {{"kernels", std::move(kernels)},
          {"left_out", rows.size() - std::min(rows.size(), kMaxKernels)}};
}

}  // namespace dynprof
