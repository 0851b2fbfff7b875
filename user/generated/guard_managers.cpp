#include "user/generated/guard_managers.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "user/generated/gc_walk.h"
#include "user/generated/leaf_guards.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxFinalizers = 1 << 18;
constexpr std::size_t kMaxManagers = 4096;
constexpr std::size_t kMaxParts = 16'384;
constexpr std::size_t kEntryWords = 8;  // of a C++ CacheEntry that are looked at

// A cache entry is a C++ object of torch's with a Python object in front (pybind11: the word behind
// the head is the C++ address). In it stand, among others, the guard manager, the code and the
// CompileId. Their offsets are private, so each of them is recognized by its type, and the first must be the
// guard manager that led here; otherwise the entry is ignored.
void read_cache_entry(PythonObjects& python, GuardManager& guards) {
  auto entry = python.attribute(guards.manager, {"cache_entry"});
  if (!entry || !python.values().type_name(*entry).ends_with("_CacheEntry")) return;
  RemoteMemory& memory = python.objects().memory();
  auto address = memory.read_pointer(*entry + python.objects().layout().object_size);
  std::array<std::uint64_t, kEntryWords> words{};
  if (!address || !memory.read(*address, std::as_writable_bytes(std::span(words)))) return;
  bool ours = false;
  std::uint64_t code = 0;
  std::string id;
  int codes = 0;
  int ids = 0;
  for (std::uint64_t word : words) {
    if (!plausible_pointer(word)) continue;
    std::string type = python.values().type_name(word);
    ours = ours || word == guards.manager;
    if (type == "code" && ++codes == 1) code = word;
    if (type == "CompileId" && ++ids == 1) id = python.trace_id(word);
  }
  if (!ours || codes != 1 || ids != 1 || id.empty()) return;
  guards.code = code;
  guards.trace_id = id;
}

// functools.partial(check_manager.invalidate, obj_str=...) -> check_manager
std::optional<std::uint64_t> check_manager_of(PythonObjects& python, std::uint64_t finalizer_info) {
  auto callback = python.attribute(finalizer_info, {"func"});
  if (!callback) return std::nullopt;
  std::vector<std::uint64_t> parts = python.partial_parts(*callback);
  auto self = parts.empty() ? std::nullopt : python.method_self(parts[0]);
  if (!self || python.values().type_name(*self) != "CheckFunctionManager") return std::nullopt;
  return self;
}

class Search {
 public:
  explicit Search(PythonObjects& python) : python_(python) {}

  // torch registers one for each object that a compile has guards on, so most of hundreds lead to the same few check
  // managers.
  void by_finalizers(LookDeadline deadline) {
    auto type = python_.global("weakref", "finalize");
    auto registry = type ? python_.objects().type_get(*type, "_registry") : std::nullopt;
    auto items = registry ? python_.values().dict_items(*registry, kMaxFinalizers) : std::nullopt;
    std::unordered_set<std::uint64_t> checks;
    for (const DictEntry& item : items.value_or(std::vector<DictEntry>())) {
      if (over(deadline)) return;
      const auto check = check_manager_of(python_, item.value);
      if (!check || !checks.insert(*check).second) continue;
      if (auto manager = python_.attribute(*check, {"guard_manager"})) add(*manager, *check);
    }
  }

  void by_gc(std::span<const std::uint64_t> managers, LookDeadline deadline) {
    for (std::uint64_t manager : managers) {
      if (over(deadline)) return;
      add(manager, 0);
    }
  }

  std::vector<GuardManager> take() { return std::move(managers_); }

 private:
  void add(std::uint64_t manager, std::uint64_t check_manager) {
    if (managers_.size() >= kMaxManagers || known_.contains(manager)) return;
    if (python_.values().type_name(manager) != "GuardManagerWrapper") return;
    known_.emplace(manager, managers_.size());
    GuardManager found;
    found.manager = manager;
    found.check_manager = check_manager;
    read_cache_entry(python_, found);
    managers_.push_back(found);
  }

  PythonObjects& python_;
  std::vector<GuardManager> managers_;
  std::unordered_map<std::uint64_t, std::size_t> known_;
};

void read_parts(PythonObjects& python, std::optional<std::uint64_t> list, std::size_t max_bytes,
                std::vector<std::string>& parts, bool& truncated) {
  if (!list) return;
  auto items = python.values().list_items(*list, kMaxParts);
  std::size_t used = 0;
  for (std::uint64_t item : items.value_or(std::vector<std::uint64_t>())) {
    auto part = python.text(item, max_bytes - used);
    if (!part) continue;
    used += part->text.size();
    truncated = truncated || part->truncated;
    parts.push_back(std::move(part->text));
    if (used >= max_bytes) return;
  }
}

// Of the guards in C++ those that are not among `parts`: "4 <= L['x'].size()[0]  # if x.size(0) > 3: ..."
std::vector<std::string> shape_guards(PythonObjects& python, std::uint64_t manager,
                                      const std::vector<std::string>& parts,
                                      std::size_t max_bytes) {
  std::vector<std::string> texts = root_guard_texts(python, manager, max_bytes);
  std::erase_if(texts, [&](const std::string& text) {
    return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return !part.empty() && text.starts_with(part);
    });
  });
  return texts;
}

}  // namespace

GuardObjects find_guard_objects(PythonObjects& python, std::size_t gc_objects,
                                LookDeadline deadline) {
  auto type = python.global("torch._dynamo.guards", "GuardManagerWrapper");
  auto list_type = python.global("builtins", "list");
  if (!type || !list_type || gc_objects == 0) return {};
  const std::uint64_t types[] = {*type, *list_type};
  GcInstances found = find_gc_instances(python, *type, types, gc_objects, deadline);
  return {std::move(found.objects[0]), std::move(found.objects[1]), found.complete};
}

std::vector<GuardManager> find_guard_managers(PythonObjects& python, const GuardObjects& objects,
                                              LookDeadline deadline) {
  Search search(python);
  search.by_finalizers(deadline);
  search.by_gc(objects.managers, deadline);
  return search.take();
}

std::optional<GuardText> read_guards(PythonObjects& python, const GuardManager& guards,
                                     std::size_t max_bytes) {
  auto list = python.attribute(guards.manager, {"code_parts"});
  if (!list) return std::nullopt;
  GuardText text;
  read_parts(python, list, max_bytes, text.parts, text.truncated);
  if (text.parts.empty()) return std::nullopt;
  text.shape_parts = shape_guards(python, guards.manager, text.parts, max_bytes);
  if (text.shape_parts.empty() && guards.check_manager != 0) {
    auto shapes =
        python.attribute(guards.check_manager, {"shape_code_parts", "verbose_code_parts", "exprs"});
    read_parts(python, shapes, max_bytes, text.shape_parts, text.truncated);
  }
  return text;
}

}  // namespace dynprof
