#include "user/live/triton_kernel.h"

#include <array>
#include <chrono>
#include <string_view>
#include <utility>

namespace dynprof {
namespace {

constexpr std::size_t kMaxName = 512;
constexpr int kMaxWrappers = 8;  // Autotuner, Heuristics, around the kernel

// A function whose local has the kernel. `begins_work`: that the thread is in it says that it compiles or tunes,
// and does not just launch a kernel.
struct Place {
  std::string_view file, function, local;
  bool begins_work;
  bool compiles;
};
constexpr std::string_view kHeuristics = "torch/_inductor/runtime/triton_heuristics.py";
constexpr std::array kPlaces = {
    Place{"triton/compiler/compiler.py", "compile", "src", true, true},
    Place{"triton/runtime/jit.py", "JITFunction.run", "self", false, false},
    Place{"triton/runtime/jit.py", "JITFunction._do_compile", "self", true, false},
    Place{"triton/runtime/autotuner.py", "Autotuner.run", "self", false, false},
    Place{"triton/runtime/autotuner.py", "Autotuner._bench", "self", true, false},
    Place{kHeuristics, "CachingAutotuner.precompile", "self", true, false},
    Place{kHeuristics, "CachingAutotuner.autotune_to_one_config", "self", true, false},
    Place{kHeuristics, "CachingAutotuner.benchmark_all_configs", "self", true, false},
    Place{kHeuristics, "CachingAutotuner.coordinate_descent_tuning", "self", true, false},
};

struct Reading {
  std::optional<TritonKernel> kernel;
  TargetView::UsedLocals used;
};

// Of a JITFunction, or of what wraps one.
std::string kernel_name(RemoteValues& values, std::uint64_t object) {
  for (int i = 0; i <= kMaxWrappers; ++i) {
    if (values.is_a(object, "JITFunction")) {
      auto name = values.attribute(object, "__name__");
      return name ? values.read_str(*name, kMaxName).value_or(std::string()) : std::string();
    }
    auto inner = values.attribute(object, "fn");
    if (!inner) break;
    object = *inner;
  }
  return {};
}

// The innermost place counts: a kernel that is tuned is compiled for each configuration.
Reading read_kernel(TargetView& view, const RemoteStack& stack) {
  Reading reading;
  bool works = false;
  TritonKernel kernel;
  for (std::size_t depth = 1; depth <= stack.frames.size(); ++depth) {
    const StackFrame& frame = stack.frames[stack.frames.size() - depth];
    for (const Place& place : kPlaces) {
      if (!view.is_function(frame, place.file, place.function)) continue;
      works |= place.begins_work;
      auto local = view.local(frame, place.local);
      if (!local) break;
      std::string name = kernel_name(view.values, local->value);
      if (name.empty()) break;
      kernel.name = std::move(name);
      kernel.compilation = place.compiles ? local->value : 0;
      reading.used.add(*local, depth);
      break;
    }
  }
  if (works && !kernel.name.empty()) reading.kernel = std::move(kernel);
  return reading;
}

}  // namespace

std::optional<TritonKernel> read_triton_kernel(TargetView& view, SnapshotMemory& pages,
                                               std::uint64_t tstate, Deadline deadline) {
  do {
    auto stack = view.stacks.again(tstate);
    if (!stack) continue;
    pages.renew();  // the objects as they are while that stack stands
    view.names.read(*stack);
    Reading reading = read_kernel(view, *stack);
    if (!reading.kernel) return std::nullopt;
    auto now = view.stacks.again(tstate, *stack);
    if (now && view.still_holds(reading.used, *stack, *now)) return std::move(reading.kernel);
  } while (std::chrono::steady_clock::now() < deadline);
  return std::nullopt;
}

}  // namespace dynprof
