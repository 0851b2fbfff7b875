#include "user/target/remote_objects.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace dynprof {
namespace {

void append_code_point(std::uint32_t c, std::string& text) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

}  // namespace

std::optional<std::uint64_t> RemoteObjects::type_of(std::uint64_t object) {
  if (!plausible_pointer(object)) return std::nullopt;
  return memory_.read_pointer(object + layout_.object_type);
}

std::string RemoteObjects::type_name(std::uint64_t type) {
  auto name = memory_.read_pointer(type + layout_.type_name);
  if (!name) {  // tp_name need not be aligned
    auto raw = memory_.read<std::uint64_t>(type + layout_.type_name);
    if (!raw || *raw < 4096) return {};
    name = raw;
  }
  return memory_.read_c_string(*name, 256).value_or("");
}

std::optional<StringHead> RemoteObjects::parse_string_head(std::span<const std::byte> bytes) const {
  return parse_head(bytes, str_type_);
}

// `type`: what the object's has to be, 0 for any.
std::optional<StringHead> RemoteObjects::parse_head(std::span<const std::byte> bytes,
                                                    std::uint64_t type) const {
  if (bytes.size() < layout_.unicode_ascii_data) return std::nullopt;
  if (type != 0 && load<std::uint64_t>(bytes, layout_.object_type) != type) return std::nullopt;
  StringHead head;
  head.length = load<std::uint64_t>(bytes, layout_.unicode_length);
  std::uint32_t state =
      load<std::uint32_t>(bytes, layout_.unicode_state) >> layout_.unicode_kind_shift;
  head.width = state & 7;
  bool compact = (state & 8) != 0;
  head.ascii = (state & 16) != 0;
  if (head.width != 1 && head.width != 2 && head.width != 4) return std::nullopt;
  if (head.ascii && head.width != 1) return std::nullopt;
  if (head.length > (1ULL << 40)) return std::nullopt;
  if (!compact) {
    head.data_offset = 0;
  } else {
    head.data_offset = head.ascii ? layout_.unicode_ascii_data : layout_.unicode_compact_data;
  }
  return head;
}

bool RemoteObjects::encode_utf8(std::span<const std::byte> characters, std::uint32_t width,
                                std::string& text) {
  text.reserve(text.size() + characters.size() / width);
  if (width == 1 && std::none_of(characters.begin(), characters.end(), [](std::byte c) {
        return (c & std::byte{0x80}) != std::byte{};
      })) {
    text.append(reinterpret_cast<const char*>(characters.data()), characters.size());
    return true;
  }
  for (std::size_t i = 0; i + width <= characters.size(); i += width) {
    std::uint32_t c = 0;
    std::memcpy(&c, characters.data() + i, width);
    if (c > 0x10ffff) return false;
    append_code_point(c, text);
  }
  return true;
}

Unreadable RemoteObjects::read_str(std::uint64_t object, std::string& text,
                                   std::size_t max_length) {
  text.clear();
  if (!plausible_pointer(object)) return Unreadable::kBadLayout;
  std::array<std::byte, 256> buffer;
  RemoteRange range{object, buffer};
  memory_.read_many(std::span(&range, 1));
  return read_characters(object, std::span(buffer).first(range.done), str_type_, text, max_length);
}

Unreadable RemoteObjects::read_str_from(std::uint64_t object, std::span<const std::byte> bytes,
                                        std::string& text, std::size_t max_length) {
  text.clear();
  return read_characters(object, bytes, 0, text, max_length);
}

// `bytes`: the first of the object.
Unreadable RemoteObjects::read_characters(std::uint64_t object, std::span<const std::byte> bytes,
                                          std::uint64_t type, std::string& text,
                                          std::size_t max_length) {
  if (bytes.size() < layout_.unicode_ascii_data) return Unreadable::kFault;
  auto head = parse_head(bytes, type);
  if (!head) return Unreadable::kBadLayout;
  if (head->length > max_length) return Unreadable::kTooLong;
  std::size_t size = static_cast<std::size_t>(head->length) * head->width;
  if (head->data_offset != 0 && head->data_offset + size <= bytes.size()) {
    bytes = bytes.subspan(head->data_offset, size);
    return encode_utf8(bytes, head->width, text) ? Unreadable::kNo : Unreadable::kBadLayout;
  }
  std::uint64_t data = object + head->data_offset;
  if (head->data_offset == 0) {  // not compact: PyUnicodeObject.data
    auto pointer = memory_.read<std::uint64_t>(object + layout_.unicode_compact_data);
    if (!pointer) return Unreadable::kFault;
    data = *pointer;
  }
  std::vector<std::byte> rest(size);
  if (!memory_.read(data, rest)) return Unreadable::kFault;
  return encode_utf8(rest, head->width, text) ? Unreadable::kNo : Unreadable::kBadLayout;
}

std::optional<std::string> RemoteObjects::read_str(std::uint64_t object, std::size_t max_length) {
  std::string text;
  if (read_str(object, text, max_length) != Unreadable::kNo) return std::nullopt;
  return text;
}

std::optional<std::string> RemoteObjects::read_bytes(std::uint64_t object, std::size_t max_size) {
  if (!plausible_pointer(object)) return std::nullopt;
  auto size = memory_.read<std::uint64_t>(object + layout_.object_size);
  if (!size || *size > max_size) return std::nullopt;
  std::string text(*size, '\0');
  if (!memory_.read(object + layout_.bytes_data, std::as_writable_bytes(std::span(text)))) {
    return std::nullopt;
  }
  return text;
}

std::optional<std::int64_t> RemoteObjects::read_int(std::uint64_t object) {
  if (!plausible_pointer(object)) return std::nullopt;
  auto tag = memory_.read<std::int64_t>(object + layout_.object_size);
  // The least number has no negative.
  if (!tag || *tag == std::numeric_limits<std::int64_t>::min()) return std::nullopt;
  std::int64_t count = 0;
  bool negative = false;
  if (layout_.bpf.long_tag_shift != 0) {  // lv_tag: count << 3 | sign, sign 0 +, 1 zero, 2 -
    count = *tag >> layout_.bpf.long_tag_shift;
    negative = (*tag & 3) == 2;
  } else {
    negative = *tag < 0;
    count = negative ? -*tag : *tag;
  }
  if (count < 0 || count > 2) return std::nullopt;
  std::int64_t value = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    auto digit = memory_.read<std::uint32_t>(object + layout_.long_digits +
                                             static_cast<std::uint64_t>(i) * 4);
    if (!digit || *digit >= 1U << 30) return std::nullopt;
    value |= static_cast<std::int64_t>(*digit) << (30 * i);
  }
  return negative ? -value : value;
}

std::optional<std::vector<std::uint64_t>> RemoteObjects::tuple_items(std::uint64_t object,
                                                                     std::size_t max) {
  if (!plausible_pointer(object)) return std::nullopt;
  auto size = memory_.read<std::uint64_t>(object + layout_.object_size);
  if (!size || *size > max) return std::nullopt;
  std::vector<std::uint64_t> items(*size);
  if (!memory_.read(object + layout_.tuple_items, std::as_writable_bytes(std::span(items)))) {
    return std::nullopt;
  }
  return items;
}

std::optional<DictKeys> RemoteObjects::dict_keys(std::uint64_t keys) {
  if (!plausible_pointer(keys)) return std::nullopt;
  std::array<std::byte, 40> head;
  if (!memory_.read(keys, std::span(head).first(layout_.dict_keys_indices))) return std::nullopt;
  DictKeys found;
  found.address = keys;
  std::uint64_t slots = 0;
  std::uint64_t index_bytes = 0;
  if (layout_.dict_keys_log2) {
    auto log2_size = load<std::uint8_t>(head, 8);
    auto log2_index_bytes = load<std::uint8_t>(head, 9);
    auto kind = load<std::uint8_t>(head, 10);  // 0 general, 1 str keys, 2 split
    if (log2_size > 30 || log2_index_bytes > 33 || kind > 2) return std::nullopt;
    slots = 1ULL << log2_size;
    index_bytes = 1ULL << log2_index_bytes;
    if (kind != 0) {
      found.entry_size = 16;
      found.key_offset = 0;
      found.value_offset = 8;
    }
  } else {
    slots = load<std::uint64_t>(head, 8);
    if (slots > 1ULL << 30 || (slots & (slots - 1)) != 0) return std::nullopt;
    index_bytes = slots * (slots <= 0xff ? 1 : slots <= 0xffff ? 2 : 4);
  }
  auto count = load<std::uint64_t>(head, layout_.dict_keys_nentries);
  if (count > slots || count > kMaxDictEntries) return std::nullopt;
  found.count = static_cast<std::uint32_t>(count);
  found.entries = keys + layout_.dict_keys_indices + index_bytes;
  return found;
}

std::optional<RemoteObjects::DictParts> RemoteObjects::dict_parts(std::uint64_t dict) {
  if (!plausible_pointer(dict)) return std::nullopt;
  auto keys = memory_.read_pointer(dict + layout_.dict_keys);
  auto values = memory_.read<std::uint64_t>(dict + layout_.dict_values);
  if (!keys || !values) return std::nullopt;
  auto table = dict_keys(*keys);
  if (!table) return std::nullopt;
  std::uint64_t first = *values == 0 ? 0 : *values + layout_.dict_values_header;
  return DictParts{*table, first};
}

std::optional<std::vector<DictEntry>> RemoteObjects::entries_of(const DictKeys& keys,
                                                                std::uint64_t values) {
  std::vector<std::byte> table(std::size_t{keys.count} * keys.entry_size);
  if (!memory_.read(keys.entries, table)) return std::nullopt;
  std::vector<std::uint64_t> split;
  if (values != 0) {
    split.resize(keys.count);
    // A values array may be shorter than its shared keys: read what is there.
    RemoteRange range{values, std::as_writable_bytes(std::span(split))};
    memory_.read_many(std::span(&range, 1));
  }
  std::vector<DictEntry> entries;
  entries.reserve(keys.count);
  for (std::uint32_t i = 0; i < keys.count; ++i) {
    std::size_t at = std::size_t{i} * keys.entry_size;
    DictEntry entry;
    entry.index = i;
    entry.key = load<std::uint64_t>(table, at + keys.key_offset);
    entry.value = values != 0 ? split[i] : load<std::uint64_t>(table, at + keys.value_offset);
    if (entry.key != 0) entries.push_back(entry);
  }
  return entries;
}

std::optional<std::vector<DictEntry>> RemoteObjects::dict_entries(std::uint64_t dict) {
  auto parts = dict_parts(dict);
  if (!parts) return std::nullopt;
  auto entries = entries_of(parts->keys, parts->values);
  if (entries) std::erase_if(*entries, [](const DictEntry& entry) { return entry.value == 0; });
  return entries;
}

std::optional<DictEntry> RemoteObjects::find_entry(const DictKeys& keys, std::uint64_t values,
                                                   std::string_view name) {
  auto entries = entries_of(keys, values);
  if (!entries || name.size() > 512) return std::nullopt;
  // All keys' heads and as many characters as `name` has, some hundred per system call.
  const std::size_t size = layout_.unicode_compact_data + name.size();
  constexpr std::size_t kBatch = 256;
  std::vector<std::byte> buffer(kBatch * size);
  std::vector<RemoteRange> ranges;
  for (std::size_t first = 0; first < entries->size(); first += kBatch) {
    std::size_t count = std::min(kBatch, entries->size() - first);
    ranges.clear();
    for (std::size_t i = 0; i < count; ++i) {
      ranges.push_back({(*entries)[first + i].key, std::span(buffer).subspan(i * size, size)});
    }
    memory_.read_many(ranges);
    for (std::size_t i = 0; i < count; ++i) {
      std::span<const std::byte> bytes = ranges[i].into.first(ranges[i].done);
      auto head = parse_string_head(bytes);
      if (!head || !head->ascii || head->length != name.size() || head->data_offset == 0) continue;
      if (head->data_offset + name.size() > bytes.size()) continue;
      if (std::memcmp(bytes.data() + head->data_offset, name.data(), name.size()) == 0) {
        return (*entries)[first + i];
      }
    }
  }
  return std::nullopt;
}

std::optional<DictEntry> RemoteObjects::find_entry(std::uint64_t dict, std::string_view name) {
  auto parts = dict_parts(dict);
  if (!parts) return std::nullopt;
  return find_entry(parts->keys, parts->values, name);
}

std::optional<std::uint64_t> RemoteObjects::dict_get(std::uint64_t dict, std::string_view name) {
  auto entry = find_entry(dict, name);
  if (!entry || !plausible_pointer(entry->value)) return std::nullopt;
  return entry->value;
}

std::optional<std::uint64_t> RemoteObjects::module_get(std::uint64_t module,
                                                       std::string_view name) {
  auto dict = memory_.read_pointer(module + layout_.module_dict);
  if (!dict) return std::nullopt;
  return dict_get(*dict, name);
}

std::optional<std::uint64_t> RemoteObjects::type_get(std::uint64_t type, std::string_view name) {
  // tp_dict is NULL for static builtin types on 3.12+; heap types, which we ask for, have it.
  for (int depth = 0; depth < 16 && plausible_pointer(type); ++depth) {
    if (auto dict = memory_.read_pointer(type + layout_.type_dict)) {
      if (auto value = dict_get(*dict, name)) return value;
    }
    type = memory_.read<std::uint64_t>(type + layout_.type_base).value_or(0);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> RemoteObjects::find_module(std::uint64_t interpreter,
                                                        std::string_view name) {
  auto modules = memory_.read_pointer(interpreter + layout_.interpreter_modules);
  if (!modules) return std::nullopt;
  return dict_get(*modules, name);
}

}  // namespace dynprof
