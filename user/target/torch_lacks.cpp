#include "user/target/torch_lacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "user/target/marker_rules.h"

namespace dynprof {
namespace {

// Names that torch 2.6 to 2.14 set when the module is imported, whatever their value is by then.
struct Required {
  std::string_view module;
  std::string_view name;
};
constexpr Required kRequired[] = {
    {"torch._guards", "CompileId"},
    {"torch._guards", "CompileContext"},
    {"torch._guards", "_TLS"},
    {"torch._dynamo.utils", "CHROMIUM_EVENT_LOG"},
};

struct KindText {
  dp_marker_kind kind;
  std::string_view what;
};
constexpr KindText kKinds[] = {
    {DP_MARKER_COMPILE, "no function with a forward's compile id (_compile)"},
    {DP_MARKER_ATTEMPT, "no function with the attempt (compile_frame, _compile_inner)"},
    {DP_MARKER_BACKWARD,
     "no function with a backward's compile id (get_or_compile, _backward_impl)"},
};

}  // namespace

std::vector<std::string> torch_lacks(RemoteObjects& objects, const PythonRuntime& runtime) {
  std::vector<std::string> lacks;
  for (const Required& required : kRequired) {
    auto module = objects.find_module(runtime.main_interpreter, required.module);
    if (!module || objects.module_get(*module, required.name)) continue;
    lacks.push_back(fmt::format("{} has no {}", required.module, required.name));
  }
  auto found = resolve_markers(objects, runtime);
  for (const KindText& kind : kKinds) {
    bool is_there = std::any_of(found.begin(), found.end(), [&](const ResolvedMarker& marker) {
      return marker.rule->kind == kind.kind;
    });
    auto rules = marker_rules();
    auto rule = std::find_if(rules.begin(), rules.end(),
                             [&](const MarkerRule& one) { return one.kind == kind.kind; });
    if (is_there || rule == rules.end()) continue;
    if (!objects.find_module(runtime.main_interpreter, rule->module)) continue;
    lacks.push_back(fmt::format("{} has {}", rule->module, kind.what));
  }
  return lacks;
}

}  // namespace dynprof
