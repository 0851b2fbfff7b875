#include "symbolizer/attribution/compile_modules.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "symbolizer/attribution/torch_states.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxPath = 512;
constexpr std::size_t kMaxModules = 4096;  // of one compile

}  // namespace

std::uint64_t ModuleTime::sum_ns() const {
  return std::accumulate(ns.begin(), ns.end(), std::uint64_t{0});
}

std::string module_path(std::string_view source, std::string_view qualname) {
  std::string_view rest = source.substr(0, kMaxPath);
  std::string root;
  // L['self'], G["model"]: a local or a global variable.
  if (rest.size() > 5 && (rest[0] == 'L' || rest[0] == 'G') && rest[1] == '[' &&
      (rest[2] == '\'' || rest[2] == '"')) {
    const std::size_t quote = rest.find(rest[2], 3);
    if (quote != std::string_view::npos && quote + 1 < rest.size() && rest[quote + 1] == ']') {
      root = rest.substr(3, quote - 3);
      rest.remove_prefix(quote + 2);
    }
  }
  if (root == "self") {
    // "f.<locals>.Model.forward": the class alone.
    const std::string_view of = qualname.substr(0, qualname.rfind('.'));
    const std::string_view name = of.substr(of.rfind('.') + 1);
    if (of.size() < qualname.size() && !name.empty() && name != "<locals>") root = name;
  }
  return valid_utf8(root + std::string(rest));
}

CompileModules::CompileModules(const Attribution& attribution)
    : modules_(attribution.compiles().size()) {
  const Tables& tables = attribution.recording().tables();
  std::map<std::pair<CompileIndex, std::string>, std::size_t> known;
  for (const ModuleSample& sample : tables.module_samples) {
    const TraceId id = open_compile(tables.contexts[sample.context].torch);
    const Thread& thread = tables.threads[sample.thread];
    if (sample.weight_ns == 0 || !is_valid(id)) continue;
    const CompileIndex compile =
        compile_open_at(attribution, thread.pid, thread.tid, sample.time_ns, id);
    if (compile == kNoCompile) continue;
    std::vector<ModuleTime>& modules = modules_[compile];
    std::string path =
        module_path(tables.strings[sample.module], attribution.function(compile).qualname);
    if (path.empty()) continue;
    auto at = known.find({compile, path});
    if (at == known.end()) {
      if (modules.size() == kMaxModules) continue;
      at = known.emplace(std::pair(compile, path), modules.size()).first;
      modules.push_back({std::move(path)});
    }
    modules[at->second].ns[static_cast<std::size_t>(sample.use) - 1] += sample.weight_ns;
  }
  for (std::vector<ModuleTime>& modules : modules_)
    std::stable_sort(modules.begin(), modules.end(), [](const ModuleTime& a, const ModuleTime& b) {
      return a.sum_ns() > b.sum_ns();
    });
}

}  // namespace dynprof
