#include "user/generated/compiled_codes.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "user/generated/names.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxCodes = 65'536;
constexpr std::size_t kMaxHooks = 4096;
constexpr std::size_t kMaxResumes = 256;  // of one function

// CleanupHook(scope, name): a global that goes when the code goes. Its value, or nothing when the user's module
// no longer has it.
std::optional<NamedValue> read_hook(PythonObjects& python, std::uint64_t hook) {
  auto scope = python.attribute(hook, {"scope"});
  auto name = python.text_attribute(hook, "name", 4096);
  if (!scope || !name) return std::nullopt;
  if (!is_compiled_fn(name->text) && !is_resume_point(name->text)) return std::nullopt;
  auto value = python.objects().dict_get(*scope, name->text);
  if (!value) return std::nullopt;
  return NamedValue{std::move(name->text), *value};
}

void read_hooks(PythonObjects& python, std::uint64_t list, CompiledCode& code,
                LookDeadline deadline) {
  auto hooks = python.values().list_items(list, kMaxHooks);
  for (std::uint64_t address : hooks.value_or(std::vector<std::uint64_t>())) {
    auto hook = read_hook(python, address);
    if (!hook) continue;
    if (is_compiled_fn(hook->name)) {
      code.graphs.push_back({hook->name, "", find_reachable(python, hook->value, deadline)});
    } else if (auto resume = python.function_code(hook->value)) {
      code.resume_points.push_back({hook->name, *resume});
    }
  }
}

// A cache entry names its code and its compile in one object; a graph knows the compile it was
// captured in. Two different answers count as none.
void decide_trace_id(CompiledCode& code) {
  std::set<std::string> entries;
  std::set<std::string> graphs;
  for (const GuardManager& guards : code.guards) entries.insert(guards.trace_id);
  for (const CompiledGraph& graph : code.graphs) graphs.merge(std::set(graph.reachable.trace_ids));
  const std::set<std::string>& ids = entries.empty() ? graphs : entries;
  if (ids.size() == 1) code.trace_id = *ids.begin();
  for (CompiledGraph& graph : code.graphs) {
    const std::set<std::string>& own = graph.reachable.trace_ids;
    if (own.empty() || (own.size() == 1 && *own.begin() == code.trace_id)) {
      graph.trace_id = code.trace_id;
    }
  }
}

// The entries of one of torch's tables. `missing` says why there are none.
std::vector<DictEntry> table_entries(PythonObjects& python, std::optional<std::uint64_t> table,
                                     std::string_view name, std::string& missing) {
  auto entries = table ? python.weak_key_entries(*table, kMaxCodes) : std::nullopt;
  if (entries) return *std::move(entries);
  missing = fmt::format("{} {}", name, table ? "could not be read" : "is not there");
  return {};
}

std::optional<std::uint64_t> class_attribute(PythonObjects& python, std::string_view module,
                                             std::string_view name, std::string_view attribute) {
  auto type = python.global(module, name);
  return type ? python.objects().type_get(*type, attribute) : std::nullopt;
}

void read_resume_functions(PythonObjects& python, CompiledCodes& found) {
  constexpr std::string_view kModule = "torch._dynamo.resume_execution";
  auto cache = class_attribute(python, kModule, "ContinueExecutionCache", "cache");
  std::string missing;
  for (const DictEntry& of_code : table_entries(python, cache, "", missing)) {
    auto resumes = python.values().dict_items(of_code.value, kMaxResumes);
    for (const DictEntry& entry : resumes.value_or(std::vector<DictEntry>())) {
      found.resume_functions.push_back({entry.value, of_code.key});
    }
  }
}

}  // namespace

CompiledCodes find_compiled_codes(PythonObjects& python, const GuardObjects& objects,
                                  LookDeadline deadline) {
  CompiledCodes found;
  constexpr std::string_view kUtils = "torch._dynamo.utils";
  auto originals = python.global(kUtils, "orig_code_map");
  std::unordered_map<std::uint64_t, std::size_t> index;
  for (const DictEntry& entry :
       table_entries(python, originals, "torch._dynamo.utils.orig_code_map", found.missing)) {
    if (!python.codes().identity_of(entry.key)) continue;
    index.emplace(entry.key, found.codes.size());
    CompiledCode code;
    code.code = entry.key;
    code.original = entry.value;
    found.codes.push_back(std::move(code));
  }
  for (GuardManager& manager : find_guard_managers(python, objects, deadline)) {
    auto place = index.find(manager.code);
    if (place == index.end()) {
      found.other_guards.push_back(std::move(manager));
    } else {
      found.codes[place->second].guards.push_back(std::move(manager));
    }
  }
  auto cleanups = class_attribute(python, kUtils, "CleanupManager", "instance");
  for (const DictEntry& entry :
       table_entries(python, cleanups, "torch._dynamo.utils.CleanupManager", found.missing)) {
    auto place = index.find(entry.key);
    if (place == index.end()) continue;
    read_hooks(python, entry.value, found.codes[place->second], deadline);
  }
  for (CompiledCode& code : found.codes) decide_trace_id(code);
  read_resume_functions(python, found);
  return found;
}

}  // namespace dynprof
