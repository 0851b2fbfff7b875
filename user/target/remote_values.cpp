#include "user/target/remote_values.h"

#include <algorithm>
#include <array>
#include <limits>

namespace dynprof {
namespace {

// tp_flags; the same bits in 3.10-3.14.
constexpr std::uint64_t kLongSubclass = 1ULL << 24;
constexpr std::uint64_t kListSubclass = 1ULL << 25;
constexpr std::uint64_t kTupleSubclass = 1ULL << 26;
constexpr std::uint64_t kStrSubclass = 1ULL << 28;
constexpr std::uint64_t kDictSubclass = 1ULL << 29;

constexpr int kTries = 4;
constexpr std::size_t kHeadBytes = 160;  // of an object: the whole of most numbers and strings
constexpr std::size_t kHeadsAtOnce = 512;
constexpr std::uint64_t kDequeBlock = 64;  // BLOCKLEN
constexpr std::uint64_t kMaxSetSlots = 1 << 20;

// What `once` found, when two looks with `head` around it are equal. A head that need not change with
// the items asks for them twice.
template <class Head, class Once>
auto between_equal_heads(const Head& head, const Once& once, bool twice) -> decltype(once()) {
  for (int i = 0; i < kTries; ++i) {
    auto before = head();
    if (!before) return std::nullopt;
    auto found = once();
    if (found && (!twice || once() == found) && head() == before) return found;
  }
  return std::nullopt;
}

}  // namespace

RemoteValues::RemoteValues(RemoteObjects& objects, const PythonRuntime& runtime)
    : objects_(objects), layout_(objects.layout()), none_(runtime.none) {}

// ---- scalars -------------------------------------------------------------------------------------

std::string RemoteValues::type_name(std::uint64_t object) { return type_of(object).name; }

bool RemoteValues::is_a(std::uint64_t object, std::string_view name) {
  return chain_has(type_of(object), name, layout_.object_size);
}

bool RemoteValues::is_none(std::uint64_t object) {
  if (none_ != 0) return object == none_;
  return type_of(object).name == "NoneType";
}

std::optional<std::int64_t> RemoteValues::parse_int(std::span<const std::byte> head) const {
  auto tag = load<std::int64_t>(head, layout_.object_size);
  bool tagged = layout_.bpf.long_tag_shift != 0;  // 3.12+: count << 3 | sign, 2 is negative
  bool negative = tagged ? (tag & 3) == 2 : tag < 0;
  if (tag == std::numeric_limits<std::int64_t>::min()) return std::nullopt;
  std::int64_t count = tagged ? tag >> layout_.bpf.long_tag_shift : negative ? -tag : tag;
  if (tagged && (tag & 3) == 1) count = 0;
  if (count < 0 || count > 3) return std::nullopt;
  auto digits = static_cast<std::size_t>(count);
  if (head.size() < layout_.long_digits + digits * 4) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    auto digit = load<std::uint32_t>(head, layout_.long_digits + i * 4);
    if (digit >= 1U << 30 || (i == 2 && digit >= 8)) return std::nullopt;
    value |= std::uint64_t{digit} << (30 * i);
  }
  auto number = static_cast<std::int64_t>(value);
  return negative ? -number : number;
}

RemoteValue RemoteValues::parse(std::uint64_t object, std::span<const std::byte> head,
                                std::size_t max_length) {
  RemoteValue found;
  found.address = object;
  if (head.size() < layout_.object_size) return found;
  const Type& t = type(load<std::uint64_t>(head, layout_.object_type));
  if (!t.valid) return found;
  if (none_ != 0 ? object == none_ : t.name == "NoneType") {
    found.kind = RemoteValue::Kind::kNone;
  } else if (t.has(kLongSubclass)) {
    auto number = parse_int(head);
    bool boolean = t.name == "bool";
    if (!number || (boolean && *number != 0 && *number != 1)) return found;
    found.kind = boolean ? RemoteValue::Kind::kBool : RemoteValue::Kind::kInt;
    found.integer = *number;
  } else if (t.has(kStrSubclass)) {
    if (objects_.read_str_from(object, head, found.text, max_length) != Unreadable::kNo)
      return found;
    found.kind = RemoteValue::Kind::kStr;
  } else if (chain_has(t, "float", layout_.float_value + 8)) {
    if (head.size() < layout_.float_value + 8) return found;
    found.kind = RemoteValue::Kind::kFloat;
    found.number = load<double>(head, layout_.float_value);
  } else {
    found.kind = RemoteValue::Kind::kOther;
    found.text = t.name;
  }
  return found;
}

std::vector<RemoteValue> RemoteValues::values(std::span<const std::uint64_t> objects,
                                              std::size_t max_length) {
  std::vector<RemoteValue> found;
  found.reserve(objects.size());
  std::vector<std::byte> buffer(std::min(objects.size(), kHeadsAtOnce) * kHeadBytes);
  std::vector<RemoteRange> ranges;
  for (std::size_t first = 0; first < objects.size(); first += kHeadsAtOnce) {
    std::size_t count = std::min(kHeadsAtOnce, objects.size() - first);
    ranges.clear();
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t at = objects[first + i];
      std::span<std::byte> into = std::span(buffer).subspan(i * kHeadBytes, kHeadBytes);
      ranges.push_back({at, plausible_pointer(at) ? into : into.first(0)});
    }
    memory().read_many(ranges);
    for (std::size_t i = 0; i < count; ++i) {
      found.push_back(parse(objects[first + i], ranges[i].into.first(ranges[i].done), max_length));
    }
  }
  return found;
}

RemoteValue RemoteValues::value(std::uint64_t object, std::size_t max_length) {
  return values(std::span(&object, 1), max_length).front();
}

std::optional<bool> RemoteValues::read_bool(std::uint64_t object) {
  RemoteValue found = value(object);
  if (found.kind != RemoteValue::Kind::kBool) return std::nullopt;
  return found.integer != 0;
}

std::optional<std::int64_t> RemoteValues::read_int(std::uint64_t object) {
  RemoteValue found = value(object);
  if (found.kind != RemoteValue::Kind::kInt && found.kind != RemoteValue::Kind::kBool) {
    return std::nullopt;
  }
  return found.integer;
}

std::optional<double> RemoteValues::read_float(std::uint64_t object) {
  RemoteValue found = value(object);
  if (found.kind != RemoteValue::Kind::kFloat) return std::nullopt;
  return found.number;
}

std::optional<std::string> RemoteValues::read_str(std::uint64_t object, std::size_t max_length) {
  RemoteValue found = value(object, max_length);
  if (found.kind != RemoteValue::Kind::kStr) return std::nullopt;
  return std::move(found.text);
}

// ---- containers ----------------------------------------------------------------------------------

std::optional<std::vector<std::uint64_t>> RemoteValues::words(std::uint64_t address,
                                                              std::uint64_t count) {
  std::vector<std::uint64_t> found(count);
  if (count != 0 && !memory().read(address, std::as_writable_bytes(std::span(found)))) {
    return std::nullopt;
  }
  return found;
}

std::optional<RemoteValues::ListHead> RemoteValues::list_head(std::uint64_t object) {
  auto head =
      words(object + layout_.object_size, (layout_.list_items - layout_.object_size) / 8 + 1);
  if (!head || head->front() > 1ULL << 40) return std::nullopt;
  if (head->front() != 0 && !plausible_pointer(head->back())) return std::nullopt;
  return ListHead{head->front(), head->back()};
}

std::optional<std::vector<std::uint64_t>> RemoteValues::list_tail(std::uint64_t object,
                                                                  std::size_t max) {
  if (!type_of(object).has(kListSubclass)) return std::nullopt;
  auto tail = [&]() -> std::optional<std::vector<std::uint64_t>> {
    auto head = list_head(object);
    if (!head) return std::nullopt;
    std::uint64_t count = std::min<std::uint64_t>(head->size, max);
    return words(head->items + 8 * (head->size - count), count);
  };
  return between_equal_heads([&] { return list_head(object); }, tail, true);
}

std::optional<std::vector<std::uint64_t>> RemoteValues::list_items(std::uint64_t object,
                                                                   std::size_t max) {
  auto size = type_of(object).has(kListSubclass) ? length(object) : std::nullopt;
  if (!size || *size > max) return std::nullopt;
  auto items = list_tail(object, max);
  // It may have grown beyond `max` since: then the tail is not the whole.
  auto now = length(object);
  if (!items || !now || *now > max) return std::nullopt;
  return items;
}

std::optional<std::vector<std::uint64_t>> RemoteValues::tuple_items(std::uint64_t object,
                                                                    std::size_t max) {
  if (!type_of(object).has(kTupleSubclass)) return std::nullopt;
  return objects_.tuple_items(object, max);
}

std::optional<std::vector<std::uint64_t>> RemoteValues::deque_once(std::uint64_t object,
                                                                   std::size_t max) {
  auto size = memory().read<std::uint64_t>(object + layout_.object_size);
  auto head = words(object + layout_.deque_left_block, 4);
  if (!size || *size > max || !head) return std::nullopt;
  std::uint64_t block = (*head)[0];
  std::uint64_t index = (*head)[2];
  std::vector<std::uint64_t> items;
  items.reserve(*size);
  std::array<std::uint64_t, kDequeBlock + 1> data;  // items, then the block to the right
  while (items.size() < *size) {
    if (index >= kDequeBlock || !plausible_pointer(block) ||
        !memory().read(block + 8, std::as_writable_bytes(std::span(data)))) {
      return std::nullopt;
    }
    std::size_t count = std::min<std::size_t>(kDequeBlock - index, *size - items.size());
    items.insert(items.end(), data.begin() + static_cast<std::ptrdiff_t>(index),
                 data.begin() + static_cast<std::ptrdiff_t>(index + count));
    if (items.size() == *size && (block != (*head)[1] || index + count != (*head)[3] + 1)) {
      return std::nullopt;  // the last item is not where the deque says that it ends
    }
    index = 0;
    block = data[kDequeBlock];
  }
  return items;
}

std::optional<std::vector<std::uint64_t>> RemoteValues::deque_items(std::uint64_t object,
                                                                    std::size_t max) {
  std::uint64_t fields = layout_.deque_left_block + 5 * 8;
  if (!chain_has(type_of(object), "collections.deque", static_cast<std::int64_t>(fields))) {
    return std::nullopt;
  }
  std::uint64_t count = (fields - layout_.object_size) / 8;
  return between_equal_heads([&] { return words(object + layout_.object_size, count); },
                             [&] { return deque_once(object, max); }, false);
}

std::optional<std::size_t> RemoteValues::deque_limit(std::uint64_t object) {
  std::uint64_t place = layout_.deque_left_block + 5 * 8;
  if (!chain_has(type_of(object), "collections.deque", static_cast<std::int64_t>(place) + 8)) {
    return std::nullopt;
  }
  auto limit = memory().read<std::int64_t>(object + place);
  if (!limit || *limit < 0) return std::nullopt;  // -1: none
  return static_cast<std::size_t>(*limit);
}

std::optional<std::vector<std::uint64_t>> RemoteValues::set_once(std::uint64_t object,
                                                                 std::size_t max) {
  auto used = memory().read<std::uint64_t>(object + layout_.set_used);
  auto mask = memory().read<std::uint64_t>(object + layout_.set_mask);
  auto table = memory().read_pointer(object + layout_.set_table);
  if (!used || !mask || !table || *used > max || *used > *mask + 1) return std::nullopt;
  if (*mask >= kMaxSetSlots || (*mask & (*mask + 1)) != 0) return std::nullopt;
  auto slots = words(*table, 2 * (*mask + 1));
  if (!slots) return std::nullopt;
  std::vector<std::uint64_t> items;
  for (std::size_t i = 0; i < slots->size(); i += 2) {
    bool deleted = (*slots)[i + 1] == ~std::uint64_t{0};
    if ((*slots)[i] != 0 && !deleted) items.push_back((*slots)[i]);
  }
  if (items.size() != *used) return std::nullopt;
  return items;
}

std::optional<std::vector<std::uint64_t>> RemoteValues::set_items(std::uint64_t object,
                                                                  std::size_t max) {
  const Type& t = type_of(object);
  std::int64_t least = layout_.set_table + 8;
  if (!chain_has(t, "set", least) && !chain_has(t, "frozenset", least)) return std::nullopt;
  // fill, used, mask, table
  return between_equal_heads([&] { return words(object + layout_.object_size, 4); },
                             [&] { return set_once(object, max); }, true);
}

std::optional<std::vector<DictEntry>> RemoteValues::dict_once(std::uint64_t object,
                                                              std::size_t max) {
  auto used = memory().read<std::uint64_t>(object + layout_.dict_used);
  auto keys = memory().read_pointer(object + layout_.dict_keys);
  if (!used || *used > max || !keys) return std::nullopt;
  auto table = objects_.dict_keys(*keys);
  // Deleted entries stay in the table until it is made anew.
  if (!table || table->count > 16 * std::uint64_t{max} + 4096) return std::nullopt;
  auto entries = objects_.dict_entries(object);
  if (!entries || entries->size() != *used) return std::nullopt;
  return entries;
}

std::optional<std::vector<DictEntry>> RemoteValues::dict_items(std::uint64_t object,
                                                               std::size_t max) {
  if (!type_of(object).has(kDictSubclass)) return std::nullopt;
  // ma_used, ma_version_tag (up to 3.12 each change changes it), ma_keys, ma_values
  bool versioned = layout_.python < python_version(3, 13);
  return between_equal_heads([&] { return words(object + layout_.dict_used, 4); },
                             [&] { return dict_once(object, max); }, !versioned);
}

std::optional<std::size_t> RemoteValues::length(std::uint64_t object) {
  const Type& t = type_of(object);
  std::uint64_t place = 0;
  if (t.has(kListSubclass) || t.has(kTupleSubclass)) {
    place = layout_.object_size;
  } else if (t.has(kDictSubclass)) {
    place = layout_.dict_used;
  } else if (chain_has(t, "collections.deque", layout_.deque_left_block + 5 * 8)) {
    place = layout_.object_size;
  } else if (chain_has(t, "set", layout_.set_table + 8) ||
             chain_has(t, "frozenset", layout_.set_table + 8)) {
    place = layout_.set_used;
  } else {
    return std::nullopt;
  }
  auto size = memory().read<std::uint64_t>(object + place);
  if (!size || *size > 1ULL << 40) return std::nullopt;
  return *size;
}

}  // namespace dynprof
