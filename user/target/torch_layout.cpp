#include "user/target/torch_layout.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

namespace dynprof {
namespace {

constexpr std::uint64_t kInlineValues = 1ULL << 2;    // Py_TPFLAGS_INLINE_VALUES, 3.13+
constexpr std::uint64_t kManagedDict = 1ULL << 4;     // Py_TPFLAGS_MANAGED_DICT, 3.11+
constexpr std::uint64_t kTupleSubclass = 1ULL << 26;  // Py_TPFLAGS_TUPLE_SUBCLASS

dp_path make_path(std::initializer_list<std::int64_t> offsets) {
  dp_path path{};
  for (std::int64_t offset : offsets) {
    if (offset < std::numeric_limits<std::int16_t>::min() ||
        offset > std::numeric_limits<std::int16_t>::max() || path.steps == DP_MAX_PATH_STEPS) {
      return dp_path{};
    }
    path.offset[path.steps++] = static_cast<std::int16_t>(offset);
  }
  return path;
}

// The position of a name among the attributes instances of a class share.
std::optional<std::uint32_t> shared_index(RemoteObjects& objects, std::uint64_t type,
                                          std::string_view name) {
  const PythonLayout& t = objects.layout();
  if (t.type_cached_keys == 0) return std::nullopt;
  auto address = objects.memory().read_pointer(type + t.type_cached_keys);
  auto keys = address ? objects.dict_keys(*address) : std::nullopt;
  if (!keys) return std::nullopt;
  auto entry = objects.find_entry(*keys, 0, name);
  if (!entry) return std::nullopt;
  return entry->index;
}

AttributePaths instance_paths(const PythonLayout& t, std::uint64_t flags, std::int64_t dict_offset,
                              std::int64_t index) {
  const std::int64_t value = t.dict_values_header + 8 * index;  // inside a values array
  const std::int64_t dict_values = t.dict_values;
  const std::int64_t dict_before = -24;
  AttributePaths paths;
  if ((flags & kManagedDict) == 0) {
    if (dict_offset <= 0) return paths;
    paths.path = make_path({dict_offset, dict_values, value});
    if (!t.dict_keys_log2) {
      // 3.10 gives an instance a table of its own for good once it differs from the others. For up
      // to five attributes that has 8 slots: indices of a byte each, entries of 24 bytes.
      if (index < 5) {
        paths.by_dict =
            make_path({dict_offset, t.dict_keys, t.dict_keys_indices + 8 + 24 * index + 16});
      }
    }
    return paths;
  }
  switch (t.instance) {
    case PythonLayout::Instance::kDictOffset:
      return paths;
    case PythonLayout::Instance::kValuesBefore:
      paths.path = make_path({-32, value});
      break;
    case PythonLayout::Instance::kTaggedBefore:
      // The word is values - 1; with its low bits cleared, 8 below the array.
      paths.path = make_path({-24, 8 + value});
      break;
    case PythonLayout::Instance::kInline:
      if ((flags & kInlineValues) != 0) paths.path = make_path({t.object_size + value});
      break;
  }
  paths.by_dict = make_path({dict_before, dict_values, value});
  if (paths.path.steps == 0) std::swap(paths.path, paths.by_dict);
  return paths;
}

}  // namespace

std::optional<std::uint64_t> follow_path(RemoteMemory& memory, std::uint64_t object,
                                         const dp_path& path) {
  if (path.steps == 0 || path.steps > DP_MAX_PATH_STEPS) return std::nullopt;
  std::uint64_t at = object;
  for (int step = 0; step < path.steps; ++step) {
    auto next = memory.read<std::uint64_t>(
        at + static_cast<std::uint64_t>(static_cast<std::int64_t>(path.offset[step])));
    if (!next) return std::nullopt;
    at = step + 1 == path.steps ? *next : *next & ~std::uint64_t{7};
    if (at == 0) return std::nullopt;
  }
  return at;
}

std::optional<AttributePaths> attribute_paths(RemoteObjects& objects, std::uint64_t type,
                                              std::string_view name) {
  const PythonLayout& t = objects.layout();
  RemoteMemory& memory = objects.memory();
  auto flags = memory.read<std::uint64_t>(type + t.type_flags);
  if (!flags) return std::nullopt;
  AttributePaths paths;
  // A slot: the descriptor in the class knows the offset.
  if (auto descriptor = objects.type_get(type, name)) {
    auto kind = objects.type_of(*descriptor);
    if (kind && objects.type_name(*kind) == "member_descriptor") {
      auto definition = memory.read_pointer(*descriptor + t.member_descriptor_def);
      auto offset =
          definition ? memory.read<std::int64_t>(*definition + t.member_def_offset) : std::nullopt;
      if (!offset || *offset < t.object_size) return std::nullopt;
      paths.path = make_path({*offset});
      return paths;
    }
  }
  // A named tuple: the order of its fields.
  if ((*flags & kTupleSubclass) != 0) {
    auto fields = objects.type_get(type, "_fields");
    auto items = fields ? objects.tuple_items(*fields, 64) : std::nullopt;
    if (!items) return std::nullopt;
    for (std::size_t i = 0; i < items->size(); ++i) {
      if (objects.read_str((*items)[i], 256) == name) {
        paths.path = make_path({t.tuple_items + 8 * static_cast<std::int64_t>(i)});
        return paths;
      }
    }
    return std::nullopt;
  }
  auto index = shared_index(objects, type, name);
  auto dict_offset = memory.read<std::int64_t>(type + t.type_dictoffset);
  if (!index || !dict_offset) return std::nullopt;
  paths = instance_paths(t, *flags, *dict_offset, *index);
  if (paths.path.steps == 0) return std::nullopt;
  return paths;
}

std::optional<TorchTarget> resolve_torch(RemoteObjects& objects, const PythonRuntime& runtime) {
  if (!objects.find_module(runtime.main_interpreter, "torch")) return std::nullopt;
  TorchTarget torch;
  if (auto version = objects.find_module(runtime.main_interpreter, "torch.version")) {
    if (auto text = objects.module_get(*version, "__version__")) {
      torch.version = objects.read_str(*text, 256).value_or("");
    }
  }
  auto guards = objects.find_module(runtime.main_interpreter, "torch._guards");
  if (!guards) {
    torch.missing = "torch._guards";
    return torch;
  }
  auto note = [&](std::string_view what) {
    if (!torch.missing.empty()) torch.missing += ", ";
    torch.missing += what;
  };
  dp_torch_layout& out = torch.layout;
  auto learn = [&](std::uint64_t type, std::string_view name, dp_path& path, dp_path* by_dict) {
    auto paths = attribute_paths(objects, type, name);
    if (!paths) return false;
    path = paths->path;
    if (by_dict) *by_dict = paths->by_dict;
    return true;
  };
  if (auto type = objects.module_get(*guards, "CompileId")) {
    out.compile_id_type = *type;
    if (!learn(*type, "frame_id", out.id_frame, nullptr)) note("CompileId.frame_id");
    if (!learn(*type, "frame_compile_id", out.id_compile, nullptr)) {
      note("CompileId.frame_compile_id");
    }
    // Absent in 2.6; where the others are known and this is not, the class has none.
    learn(*type, "compiled_autograd_id", out.id_autograd, nullptr);
  } else {
    note("CompileId");
  }
  if (auto type = objects.module_get(*guards, "CompileContext")) {
    out.compile_context_type = *type;
    if (!learn(*type, "compile_id", out.context_id, &out.context_id_dict)) {
      note("CompileContext.compile_id");
    }
    if (!learn(*type, "attempt", out.context_attempt, &out.context_attempt_dict)) {
      note("CompileContext.attempt");
    }
  } else {
    note("CompileContext");
  }
  out.str_type = runtime.str_type;
  // Any list will do: sys.modules' torch.__path__ is one.
  auto package = objects.find_module(runtime.main_interpreter, "torch");
  auto path = package ? objects.module_get(*package, "__path__") : std::nullopt;
  auto list_type = path ? objects.type_of(*path) : std::nullopt;
  if (list_type && objects.type_name(*list_type) == "list") out.list_type = *list_type;
  torch.complete = torch.missing.empty();
  return torch;
}

}  // namespace dynprof
