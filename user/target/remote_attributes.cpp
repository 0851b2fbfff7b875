// RemoteValues: what types say of their instances, and where instances keep their attributes.
#include <algorithm>
#include <cstdlib>

#include "user/target/remote_values.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kInlineValues = 1ULL << 2;  // 3.13+
constexpr std::uint64_t kManagedDict = 1ULL << 4;   // 3.11+
constexpr std::uint64_t kHeapType = 1ULL << 9;
constexpr std::uint64_t kTupleSubclass = 1ULL << 26;
constexpr std::uint64_t kTypeSubclass = 1ULL << 31;

constexpr int kMaxBases = 24;
constexpr std::size_t kMaxTypes = 4096;
constexpr std::size_t kMaxNames = 65'536;
constexpr std::size_t kMaxNameLength = 512;
constexpr std::size_t kMaxFields = 256;
constexpr std::uint32_t kMaxClassEntries = 4096;
// PyMemberDef.type of members that are objects: T_OBJECT, T_OBJECT_EX.
constexpr std::uint32_t kMemberObject = 6;
constexpr std::uint32_t kMemberObjectEx = 16;

}  // namespace

// ---- types ---------------------------------------------------------------------------------------

void RemoteValues::forget() {
  types_.clear();
  names_.clear();
}

const RemoteValues::Type& RemoteValues::type(std::uint64_t address) {
  static const Type kUnknown;
  auto [place, added] = types_.try_emplace(address);
  Type& found = place->second;
  if (!added) return found;
  if (types_.size() > kMaxTypes) {
    types_.erase(place);
    return kUnknown;
  }
  // A type is an instance of a type: freed memory hardly ever looks like one.
  auto meta = objects_.type_of(address);
  auto meta_flags = meta ? memory().read<std::uint64_t>(*meta + layout_.type_flags) : std::nullopt;
  if (!meta_flags || (*meta_flags & kTypeSubclass) == 0) return found;
  auto flags = memory().read<std::uint64_t>(address + layout_.type_flags);
  auto base = memory().read<std::uint64_t>(address + layout_.type_base);
  auto basic = memory().read<std::int64_t>(address + layout_.type_basicsize);
  auto item = memory().read<std::int64_t>(address + layout_.type_itemsize);
  auto dict = memory().read<std::int64_t>(address + layout_.type_dictoffset);
  if (!flags || !base || !basic || !item || !dict) return found;
  constexpr std::int64_t kLargest = 1 << 20;
  if (*basic < layout_.object_size || *basic > kLargest || *item < 0 || *item > kLargest) {
    return found;
  }
  found.name = objects_.type_name(address);
  found.flags = *flags;
  found.base = *base;
  found.basicsize = *basic;
  found.itemsize = *item;
  found.dict_offset = *dict;
  found.valid = !found.name.empty();
  return found;
}

const RemoteValues::Type& RemoteValues::type_of(std::uint64_t object) {
  return type(objects_.type_of(object).value_or(0));
}

bool RemoteValues::chain_has(const Type& t, std::string_view name, std::int64_t least_size) {
  const Type* at = &t;
  for (int depth = 0; depth < kMaxBases && at->valid; ++depth) {
    // A class of Python's that merely has the name is too small for what a built-in keeps.
    if (at->name == name) return at->basicsize >= least_size;
    at = &type(at->base);
  }
  return false;
}

const RemoteValues::Type& RemoteValues::with_slots(std::uint64_t address) {
  const Type& known = type(address);
  if (!known.valid || known.slots_known) return known;
  Type& t = types_.at(address);
  t.slots_known = true;
  learn_slots(address, t);
  if (t.has(kTupleSubclass)) learn_fields(address, t);
  return t;
}

// Member descriptors of every class on the chain; a slot of the same name further out is hidden.
// Built-in types are left out: from 3.12 on they have no dict of their own.
void RemoteValues::learn_slots(std::uint64_t address, Type& t) {
  std::uint64_t at = address;
  for (int depth = 0; depth < kMaxBases && type(at).valid; ++depth) {
    std::uint64_t here = at;
    at = type(at).base;
    if (!type(here).has(kHeapType)) continue;
    auto dict = memory().read_pointer(here + layout_.type_dict);
    auto entries = dict ? dict_items(*dict, kMaxClassEntries) : std::nullopt;
    for (const DictEntry& entry : entries.value_or(std::vector<DictEntry>())) {
      if (type_of(entry.value).name != "member_descriptor") continue;
      auto definition = memory().read_pointer(entry.value + layout_.member_descriptor_def);
      if (!definition) continue;
      auto kind = memory().read<std::uint32_t>(*definition + layout_.member_def_type);
      auto offset = memory().read<std::int64_t>(*definition + layout_.member_def_offset);
      if (!kind || !offset || (*kind != kMemberObject && *kind != kMemberObjectEx)) continue;
      if (*offset < layout_.object_size || *offset + 8 > t.basicsize || *offset % 8 != 0) continue;
      auto name = objects_.read_str(entry.key, kMaxNameLength);
      if (!name) continue;
      bool hidden = std::any_of(t.slots.begin(), t.slots.end(),
                                [&](const Slot& slot) { return slot.name == *name; });
      if (!hidden) t.slots.push_back({std::move(*name), static_cast<std::uint64_t>(*offset)});
    }
  }
}

void RemoteValues::learn_fields(std::uint64_t address, Type& t) {
  auto fields = objects_.type_get(address, "_fields");
  auto items = fields ? tuple_items(*fields, kMaxFields) : std::nullopt;
  if (!items) return;
  for (std::uint64_t item : *items) {
    auto name = objects_.read_str(item, kMaxNameLength);
    if (!name) {
      t.fields.clear();
      return;
    }
    t.fields.push_back(std::move(*name));
  }
}

// ---- the dictionary of an instance ---------------------------------------------------------------

std::optional<RemoteValues::Store> RemoteValues::shared_store(std::uint64_t type_address,
                                                              std::uint64_t values) {
  if (layout_.type_cached_keys == 0 || !plausible_pointer(values)) return std::nullopt;
  auto keys = memory().read_pointer(type_address + layout_.type_cached_keys);
  auto table = keys ? objects_.dict_keys(*keys) : std::nullopt;
  if (!table) return std::nullopt;
  return Store{0, *table, values + layout_.dict_values_header};
}

// Py_TPFLAGS_MANAGED_DICT: words in front of the object say where its attributes are.
std::optional<RemoteValues::Store> RemoteValues::managed_store(std::uint64_t object,
                                                               const Type& t) {
  if (layout_.free_threaded) return std::nullopt;  // laid out by rules we could not test
  std::uint64_t type_address = objects_.type_of(object).value_or(0);
  auto before = [&](std::int32_t offset) {
    return memory().read<std::uint64_t>(object + static_cast<std::uint64_t>(std::int64_t{offset}));
  };
  auto word = before(layout_.managed_dict);
  if (!word) return std::nullopt;
  bool tagged = layout_.instance == PythonLayout::Instance::kTaggedBefore && (*word & 1) != 0;
  if (tagged) return shared_store(type_address, *word + 1);
  if (*word != 0) return Store{*word, {}, 0};
  if (layout_.instance == PythonLayout::Instance::kValuesBefore) {
    return shared_store(type_address, before(layout_.managed_values).value_or(0));
  }
  if (layout_.instance == PythonLayout::Instance::kInline && t.has(kInlineValues)) {
    std::uint64_t values = object + static_cast<std::uint64_t>(t.basicsize);
    // Bytes: capacity, size, embedded, valid (0 once a dict of its own has taken over).
    auto head = memory().read<std::uint32_t>(values);
    if (!head || *head >> 24 != 1) return std::nullopt;
    auto store = shared_store(type_address, values);
    if (store && store->keys.count > (*head & 0xff)) return std::nullopt;
    return store;
  }
  return std::nullopt;
}

std::optional<RemoteValues::Store> RemoteValues::store_of(std::uint64_t object,
                                                          std::uint64_t type_address) {
  const Type& t = type(type_address);
  if (t.has(kManagedDict)) return managed_store(object, t);
  std::int64_t offset = t.dict_offset;
  if (offset == 0) return std::nullopt;
  if (offset < 0) {  // from the end of an object of variable size
    auto size = memory().read<std::int64_t>(object + layout_.object_size);
    if (!size || *size > 1 << 24 || *size < -(1 << 24)) return std::nullopt;
    offset += (t.basicsize + std::abs(*size) * t.itemsize + 7) / 8 * 8;
  }
  if (offset < layout_.object_size) return std::nullopt;
  auto dict = memory().read_pointer(object + static_cast<std::uint64_t>(offset));
  if (!dict) return std::nullopt;
  return Store{*dict, {}, 0};
}

// ---- attributes ----------------------------------------------------------------------------------

std::optional<std::uint64_t> RemoteValues::attribute(std::uint64_t object, std::string_view name) {
  std::uint64_t type_address = objects_.type_of(object).value_or(0);
  const Type& t = with_slots(type_address);
  if (!t.valid || name.size() > kMaxNameLength) return std::nullopt;
  for (const Slot& slot : t.slots) {
    if (slot.name == name) return memory().read_pointer(object + slot.offset);
  }
  auto field = std::find(t.fields.begin(), t.fields.end(), name);
  if (field != t.fields.end()) {
    auto index = static_cast<std::size_t>(field - t.fields.begin());
    auto items = tuple_items(object, kMaxTupleItems);
    if (!items || index >= items->size() || !plausible_pointer((*items)[index])) {
      return std::nullopt;
    }
    return (*items)[index];
  }
  auto store = store_of(object, type_address);
  if (!store) return std::nullopt;
  if (store->dict != 0) {
    if (!is_a(store->dict, "dict")) return std::nullopt;
    return objects_.dict_get(store->dict, name);
  }
  auto entry = objects_.find_entry(store->keys, store->values, name);
  if (!entry || !plausible_pointer(entry->value)) return std::nullopt;
  return entry->value;
}

// The names of entries, where not known yet, many at once.
void RemoteValues::learn_names(std::span<const DictEntry> entries) {
  std::vector<std::uint64_t> unknown;
  for (const DictEntry& entry : entries) {
    if (!names_.contains(entry.key)) unknown.push_back(entry.key);
  }
  if (names_.size() + unknown.size() > kMaxNames) names_.clear();
  for (RemoteValue& name : values(unknown, kMaxNameLength)) {
    if (name.kind == RemoteValue::Kind::kStr) names_[name.address] = std::move(name.text);
  }
}

std::optional<std::vector<NamedValue>> RemoteValues::attributes(std::uint64_t object,
                                                                std::size_t max) {
  std::uint64_t type_address = objects_.type_of(object).value_or(0);
  const Type& t = with_slots(type_address);
  if (!t.valid) return std::nullopt;
  std::vector<NamedValue> found;
  for (const Slot& slot : t.slots) {
    auto value = memory().read_pointer(object + slot.offset);
    if (value) found.push_back({slot.name, *value});
  }
  if (!t.fields.empty()) {
    auto items = tuple_items(object, kMaxTupleItems);
    if (!items || items->size() < t.fields.size()) return std::nullopt;
    for (std::size_t i = 0; i < t.fields.size(); ++i) {
      found.push_back({t.fields[i], (*items)[i]});
    }
  }
  auto store = store_of(object, type_address);
  std::optional<std::vector<DictEntry>> entries;
  if (store && store->dict != 0) {
    entries = dict_items(store->dict, max);
    if (!entries) return std::nullopt;
  } else if (store) {
    if (store->keys.count > max) return std::nullopt;
    entries = objects_.entries_of(store->keys, store->values);
    if (!entries) return std::nullopt;
  }
  if (entries) {
    learn_names(*entries);
    for (const DictEntry& entry : *entries) {
      auto name = names_.find(entry.key);
      if (entry.value == 0 || name == names_.end()) continue;
      found.push_back({name->second, entry.value});
    }
  }
  if (found.size() > max) return std::nullopt;
  return found;
}

}  // namespace dynprof
