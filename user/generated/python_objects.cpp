#include "user/generated/python_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dynprof {
namespace {

// Where these fields lie in CPython 3.10-3.15, in bytes behind the object's head: PyMethodObject is
// im_func, im_self; PyCFunctionObject m_ml, m_self; partialobject fn, args, kw; PyWeakReference
// wr_object.
constexpr std::uint32_t kMethodFunction = 0;
constexpr std::uint32_t kMethodSelf = 8;
constexpr std::uint32_t kBuiltinSelf = 8;
constexpr std::uint32_t kPartialFunction = 0;
constexpr std::uint32_t kPartialArguments = 8;
constexpr std::uint32_t kPartialKeywords = 16;
constexpr std::uint32_t kWeakReferent = 0;

constexpr std::size_t kMaxCells = 256;
constexpr std::size_t kMaxFreeNames = 4096;  // code objects whose names are kept

}  // namespace

PythonObjects::PythonObjects(RemoteObjects& objects, const PythonRuntime& runtime)
    : objects_(objects),
      runtime_(runtime),
      values_(objects, runtime),
      codes_(objects, runtime.code_type) {}

std::optional<std::uint64_t> PythonObjects::field(std::uint64_t object, std::uint32_t offset) {
  return objects_.memory().read_pointer(object + objects_.layout().object_size + offset);
}

std::optional<RemoteText> PythonObjects::text(std::uint64_t object, std::size_t max_bytes) {
  if (!plausible_pointer(object)) return std::nullopt;
  const PythonLayout& t = objects_.layout();
  std::array<std::byte, 128> bytes;  // the head is 72 at most
  if (t.unicode_compact_data > bytes.size()) return std::nullopt;
  RemoteRange range{object, std::span(bytes).first(t.unicode_compact_data)};
  objects_.memory().read_many(std::span(&range, 1));
  auto head = objects_.parse_string_head(std::span(bytes).first(range.done));
  if (!head || values_.type_name(object) != "str") return std::nullopt;
  RemoteText found;
  if (std::size_t all = static_cast<std::size_t>(head->length) * head->width; all <= max_bytes) {
    if (objects_.read_str(object, found.text, head->length) != Unreadable::kNo) return std::nullopt;
    return alive(object) ? std::optional(found) : std::nullopt;
  }
  if (head->data_offset == 0) return std::nullopt;  // not compact: none of torch's are
  std::vector<std::byte> first(max_bytes / head->width * head->width);
  if (!objects_.memory().read(object + head->data_offset, first)) return std::nullopt;
  if (!RemoteObjects::encode_utf8(first, head->width, found.text)) return std::nullopt;
  found.truncated = true;
  return alive(object) ? std::optional(found) : std::nullopt;
}

std::optional<RemoteText> PythonObjects::text_attribute(std::uint64_t object, std::string_view name,
                                                        std::size_t max_bytes) {
  auto value = values_.attribute(object, name);
  auto found = value ? text(*value, max_bytes) : std::nullopt;
  // Freed meanwhile, the object may still look whole while its text's memory has a new owner.
  return found && alive(object) ? found : std::nullopt;
}

bool PythonObjects::alive(std::uint64_t object) {
  auto count = objects_.memory().read<std::uint64_t>(object);
  if (!count || (*count & 0xffff'ffff) == 0) return false;
  bool link = *count >= 1ULL << 32 && plausible_pointer(*count);
  return !link;
}

std::optional<std::uint64_t> PythonObjects::global(std::string_view module, std::string_view name) {
  auto found = objects_.find_module(runtime_.main_interpreter, module);
  return found ? objects_.module_get(*found, name) : std::nullopt;
}

std::optional<std::uint64_t> PythonObjects::attribute(
    std::uint64_t object, std::initializer_list<std::string_view> names) {
  std::optional<std::uint64_t> at = object;
  for (std::string_view name : names) {
    at = values_.attribute(*at, name);
    if (!at || values_.is_none(*at)) return std::nullopt;
  }
  return at;
}

std::string PythonObjects::trace_id(std::uint64_t object) {
  if (values_.type_name(object) != "CompileId") return "";
  auto part = [&](std::string_view name) -> std::optional<std::int64_t> {
    auto value = values_.attribute(object, name);
    auto number = value ? values_.read_int(*value) : std::nullopt;
    return number && *number >= 0 ? number : std::nullopt;
  };
  auto frame = part("frame_id");
  auto compile = part("frame_compile_id");
  auto autograd = part("compiled_autograd_id");
  if (frame.has_value() != compile.has_value() || (!frame && !autograd)) return "";
  std::string text = autograd ? fmt::format("!{}", *autograd) : "";
  if (!frame) return text;
  return fmt::format("{}{}{}/{}", text, autograd ? "/" : "", *frame, *compile);
}

std::optional<std::uint64_t> PythonObjects::function_code(std::uint64_t function) {
  if (values_.type_name(function) != "function") return std::nullopt;
  auto code = objects_.memory().read_pointer(function + objects_.layout().function_code);
  if (!code || !codes_.identity_of(*code)) return std::nullopt;
  return code;
}

const std::vector<std::string>& PythonObjects::free_names(std::uint64_t code) {
  if (free_names_.size() >= kMaxFreeNames) free_names_.clear();
  auto [place, added] = free_names_.try_emplace(code);
  if (!added) return place->second;
  auto locals = codes_.read_locals(code);
  for (const LocalName& local : locals.value_or(std::vector<LocalName>())) {
    if ((local.kind & LocalName::kFree) != 0) place->second.push_back(local.name);
  }
  return place->second;
}

std::vector<NamedValue> PythonObjects::closure(std::uint64_t function) {
  auto code = function_code(function);
  if (!code) return {};
  auto tuple = objects_.memory().read_pointer(function + objects_.layout().function_closure);
  auto cells = tuple ? values_.tuple_items(*tuple, kMaxCells) : std::nullopt;
  if (!cells) return {};
  const std::vector<std::string>& names = free_names(*code);
  std::vector<NamedValue> found;
  for (std::size_t i = 0; i < cells->size() && i < names.size(); ++i) {
    if (values_.type_name((*cells)[i]) != "cell") return {};
    auto value = objects_.memory().read_pointer((*cells)[i] + objects_.layout().cell_value);
    if (value) found.push_back({names[i], *value});
  }
  return found;
}

std::optional<std::uint64_t> PythonObjects::function_dict(std::uint64_t function) {
  if (values_.type_name(function) != "function") return std::nullopt;
  return objects_.memory().read_pointer(function + objects_.layout().function_dict);
}

std::optional<std::uint64_t> PythonObjects::method_self(std::uint64_t method) {
  if (values_.type_name(method) != "method") return std::nullopt;
  return field(method, kMethodSelf);
}

std::optional<std::uint64_t> PythonObjects::method_function(std::uint64_t method) {
  std::string kind = values_.type_name(method);
  if (kind != "method" && kind != "staticmethod" && kind != "classmethod") return std::nullopt;
  return field(method, kMethodFunction);
}

std::optional<std::uint64_t> PythonObjects::builtin_self(std::uint64_t builtin) {
  if (values_.type_name(builtin) != "builtin_function_or_method") return std::nullopt;
  return field(builtin, kBuiltinSelf);
}

std::vector<std::uint64_t> PythonObjects::partial_parts(std::uint64_t partial) {
  std::vector<std::uint64_t> parts;
  if (!values_.is_a(partial, "functools.partial")) return parts;
  for (std::uint32_t offset : {kPartialFunction, kPartialArguments, kPartialKeywords}) {
    auto part = field(partial, offset);
    if (!part) return {};
    parts.push_back(*part);
  }
  return parts;
}

std::optional<std::vector<DictEntry>> PythonObjects::weak_key_entries(std::uint64_t object,
                                                                      std::size_t max) {
  auto values = values_.attribute(object, "values");
  auto refs = values_.attribute(object, "refs");
  auto value_items = values ? values_.dict_items(*values, max) : std::nullopt;
  auto ref_items = refs ? values_.dict_items(*refs, max) : std::nullopt;
  if (!value_items || !ref_items) return std::nullopt;
  std::vector<DictEntry> found;
  // The key is id(): as good as an address while the weak reference still leads there.
  std::unordered_map<std::int64_t, std::uint64_t> alive;
  for (const DictEntry& entry : *ref_items) {
    auto id = values_.read_int(entry.key);
    auto referent = field(entry.value, kWeakReferent);
    if (id && referent && static_cast<std::uint64_t>(*id) == *referent) alive[*id] = *referent;
  }
  for (const DictEntry& entry : *value_items) {
    auto id = values_.read_int(entry.key);
    auto key = id ? alive.find(*id) : alive.end();
    if (key != alive.end()) found.push_back({key->second, entry.value, entry.index});
  }
  return found;
}

}  // namespace dynprof
