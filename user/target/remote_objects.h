// Python objects of another process, by the layout of its version. Everything may change while we
// read: each length is bounded, each kind checked, and "nothing" is the answer when in doubt.
//
// More than 15 public members: one for each kind of object and what is read of it, in one class because all use
// the memory and the layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/recording/model.h"
#include "user/target/python_layouts.h"
#include "user/target/remote_memory.h"

namespace dynprof {

inline constexpr std::size_t kMaxStringLength = 65'536;  // characters
inline constexpr std::size_t kMaxDictEntries = 1 << 18;
inline constexpr std::size_t kMaxTupleItems = 65'536;

// The head of a str object: how many characters of which width lie where.
struct StringHead {
  std::uint64_t length = 0;
  std::uint32_t width = 1;        // bytes per character: 1, 2 or 4
  std::uint32_t data_offset = 0;  // from the object; 0: at `data` instead
  bool ascii = false;
};

struct DictEntry {
  std::uint64_t key = 0;
  std::uint64_t value = 0;
  std::uint32_t index = 0;  // among the keys' entries, and among the values of a split dict
  bool operator==(const DictEntry&) const = default;
};

// The keys table of a dict or of a type's instances (ht_cached_keys).
struct DictKeys {
  std::uint64_t address = 0;
  std::uint64_t entries = 0;      // address of entry 0
  std::uint32_t entry_size = 24;  // 24: hash, key, value; 16: key, value
  std::uint32_t key_offset = 8;
  std::uint32_t value_offset = 16;
  std::uint32_t count = 0;
};

class RemoteObjects {
 public:
  RemoteObjects(RemoteMemory& memory, const PythonLayout& layout)
      : memory_(memory), layout_(layout) {}

  RemoteMemory& memory() const { return memory_; }
  const PythonLayout& layout() const { return layout_; }
  // &PyUnicode_Type, when known: then no other object is taken for a string.
  void set_str_type(std::uint64_t type) { str_type_ = type; }
  std::uint64_t str_type() const { return str_type_; }

  std::optional<std::uint64_t> type_of(std::uint64_t object);
  std::string type_name(std::uint64_t type);  // "" when unreadable

  // Encoded as UTF-8, lone surrogates in three bytes each (Python's "surrogatepass").
  Unreadable read_str(std::uint64_t object, std::string& text,
                      std::size_t max_length = kMaxStringLength);
  // The same of what the caller knows to be a str or an instance of a subclass, and whose first bytes
  // it has read.
  Unreadable read_str_from(std::uint64_t object, std::span<const std::byte> bytes,
                           std::string& text, std::size_t max_length);
  std::optional<std::string> read_str(std::uint64_t object,
                                      std::size_t max_length = kMaxStringLength);
  std::optional<std::string> read_bytes(std::uint64_t object, std::size_t max_size);
  std::optional<std::int64_t> read_int(std::uint64_t object);  // |value| < 2^60
  std::optional<std::vector<std::uint64_t>> tuple_items(std::uint64_t object,
                                                        std::size_t max = kMaxTupleItems);

  std::optional<DictKeys> dict_keys(std::uint64_t keys);
  // The entries of a keys table, with the values of a split dict or of an instance where `values` is
  // their address; a value is 0 where there is none.
  std::optional<std::vector<DictEntry>> entries_of(const DictKeys& keys, std::uint64_t values);
  std::optional<std::vector<DictEntry>> dict_entries(std::uint64_t dict);
  std::optional<DictEntry> find_entry(const DictKeys& keys, std::uint64_t values,
                                      std::string_view name);
  std::optional<DictEntry> find_entry(std::uint64_t dict, std::string_view name);
  std::optional<std::uint64_t> dict_get(std::uint64_t dict, std::string_view name);

  // An attribute by the module's or the type's own dict, and a type's bases.
  std::optional<std::uint64_t> module_get(std::uint64_t module, std::string_view name);
  std::optional<std::uint64_t> type_get(std::uint64_t type, std::string_view name);
  // sys.modules of an interpreter.
  std::optional<std::uint64_t> find_module(std::uint64_t interpreter, std::string_view name);

  // Parses the first bytes of a str object: at least layout.unicode_ascii_data of them.
  std::optional<StringHead> parse_string_head(std::span<const std::byte> bytes) const;
  // Characters to UTF-8; false for a code point that cannot be.
  static bool encode_utf8(std::span<const std::byte> characters, std::uint32_t width,
                          std::string& text);

 private:
  struct DictParts {
    DictKeys keys;
    std::uint64_t values = 0;
  };
  std::optional<DictParts> dict_parts(std::uint64_t dict);
  Unreadable read_characters(std::uint64_t object, std::span<const std::byte> bytes,
                             std::uint64_t type, std::string& text, std::size_t max_length);
  std::optional<StringHead> parse_head(std::span<const std::byte> bytes, std::uint64_t type) const;

  RemoteMemory& memory_;
  const PythonLayout& layout_;
  std::uint64_t str_type_ = 0;
};

// A value out of bytes that were read, at an offset the caller has bounded.
template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace dynprof
