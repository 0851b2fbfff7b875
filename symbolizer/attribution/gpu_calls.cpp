// The calls into CUDA that are traced, by number.
#include <algorithm>
#include <array>

#include "symbolizer/attribution/gpu_work.h"

namespace dynprof {
namespace {

struct Known {
  std::uint32_t call;
  std::string_view name;
  std::uint32_t call_class;
};
constexpr Known kKnown[] = {
#define DYNPROF_CALL(domain, cbid, name, class) \
  {DYNPROF_GPU_CALL(DYNPROF_GPU_##domain, cbid), name, DYNPROF_GPU_CLASS_##class},
#include "cupti/calls_table.h"
#undef DYNPROF_CALL
};

const Known* find(std::uint32_t call) {
  static const auto sorted = [] {
    auto copy = std::to_array(kKnown);
    std::sort(copy.begin(), copy.end(),
              [](const Known& a, const Known& b) { return a.call < b.call; });
    return copy;
  }();
  auto at = std::lower_bound(
      sorted.begin(), sorted.end(), call,
      [](const Known& known, std::uint32_t wanted) { return known.call < wanted; });
  return at != sorted.end() && at->call == call ? &*at : nullptr;
}

}  // namespace

std::string_view gpu_call_name(std::uint32_t call) {
  const Known* known = find(call);
  return known ? known->name : std::string_view();
}

std::uint32_t gpu_call_class(std::uint32_t call) {
  const Known* known = find(call);
  return known ? known->call_class : 0;
}

}  // namespace dynprof
