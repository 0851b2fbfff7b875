// Values of another process's Python objects: numbers, containers, attributes of instances however
// CPython 3.10-3.15 lays them out. On top of RemoteObjects, which trusts its caller to know what an
// object is; here the type is asked each time, by its flags or its name.
//
// The target runs on. A container is read between two equal looks at its head, and twice where the
// head need not change with the items (up to four tries), so that it is not a mixture of two moments.
// What remains: a thread that is off its CPU in the middle of a change in place, above all between
// the two halves of list.append (the size grows first, the last item is stored next). The attributes
// of an instance may be of two moments. "Nothing" is the answer for what is of another type, longer
// than the caller allows, freed or torn.
//
// Short-lived: what types and attribute names look like is kept, so make one for each reading.
//
// More than 15 public members: one for each kind of value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

struct NamedValue {
  std::string name;
  std::uint64_t value = 0;  // address of the object
};

// What an object is worth where one look suffices; of any other object the name of its type.
struct RemoteValue {
  enum class Kind : std::uint8_t { kNothing, kNone, kBool, kInt, kFloat, kStr, kOther };
  Kind kind = Kind::kNothing;  // kNothing: unreadable, an int of over 63 bits, a str too long
  std::uint64_t address = 0;
  std::int64_t integer = 0;  // kInt; kBool: 0 or 1
  double number = 0;         // kFloat
  std::string text;          // kStr: the text; kOther: the type's tp_name
};

class RemoteValues {
 public:
  RemoteValues(RemoteObjects& objects, const PythonRuntime& runtime);

  // Types that were met are known from then on. Classes may end and others be made where they were, so an instance that
  // is kept for long forgets them at times.
  std::size_t types_known() const { return types_.size(); }
  void forget();

  RemoteObjects& objects() const { return objects_; }
  RemoteMemory& memory() const { return objects_.memory(); }

  // tp_name of the object's type: "float", "collections.deque", "CompileId" (Python classes have no
  // module there); "" when it is no object.
  std::string type_name(std::uint64_t object);
  // Whether a class on the object's chain of tp_base is called so.
  bool is_a(std::uint64_t object, std::string_view name);

  bool is_none(std::uint64_t object);
  std::optional<bool> read_bool(std::uint64_t object);
  std::optional<std::int64_t> read_int(std::uint64_t object);  // a bool is an int, as in Python
  std::optional<double> read_float(std::uint64_t object);      // of a float alone, not of an int
  std::optional<std::string> read_str(std::uint64_t object,
                                      std::size_t max_length = kMaxStringLength);
  RemoteValue value(std::uint64_t object, std::size_t max_length = kMaxStringLength);
  // The same of many: some hundred objects a system call.
  std::vector<RemoteValue> values(std::span<const std::uint64_t> objects,
                                  std::size_t max_length = kMaxStringLength);

  // Items in order, for subclasses too; nothing for more than `max` of them.
  std::optional<std::vector<std::uint64_t>> list_items(std::uint64_t object, std::size_t max);
  std::optional<std::vector<std::uint64_t>> tuple_items(std::uint64_t object, std::size_t max);
  std::optional<std::vector<std::uint64_t>> deque_items(std::uint64_t object, std::size_t max);
  std::optional<std::vector<std::uint64_t>> set_items(std::uint64_t object, std::size_t max);
  // (key, value) in the order of insertion, keys of any type: also of defaultdict, Counter, …
  std::optional<std::vector<DictEntry>> dict_items(std::uint64_t object, std::size_t max);
  // len() of any of the above; nothing for other objects.
  std::optional<std::size_t> length(std::uint64_t object);
  // maxlen of a deque; nothing where it has none.
  std::optional<std::size_t> deque_limit(std::uint64_t object);
  // The last `max` items of a list that may be longer.
  std::optional<std::vector<std::uint64_t>> list_tail(std::uint64_t object, std::size_t max);

  // The value of an attribute an instance holds: a slot (inherited ones too), a field of a named
  // tuple, or what is in its __dict__. What only its class has is not looked for.
  std::optional<std::uint64_t> attribute(std::uint64_t object, std::string_view name);
  // All of them: slots, fields, then the __dict__. Nothing for more than `max`.
  std::optional<std::vector<NamedValue>> attributes(std::uint64_t object, std::size_t max);

 private:
  struct Slot {
    std::string name;
    std::uint64_t offset = 0;
  };
  struct Type {
    bool valid = false;
    std::string name;
    std::uint64_t flags = 0;
    std::uint64_t base = 0;
    std::int64_t basicsize = 0;
    std::int64_t itemsize = 0;
    std::int64_t dict_offset = 0;
    bool slots_known = false;
    std::vector<Slot> slots;          // of the whole chain, the innermost class first
    std::vector<std::string> fields;  // of a named tuple
    bool has(std::uint64_t flag) const { return (flags & flag) != 0; }
  };
  // Where an instance keeps its attributes: in a dict, or as values in the order of shared keys.
  struct Store {
    std::uint64_t dict = 0;
    DictKeys keys;
    std::uint64_t values = 0;
  };
  struct ListHead {
    std::uint64_t size = 0;
    std::uint64_t items = 0;
    bool operator==(const ListHead&) const = default;
  };

  const Type& type(std::uint64_t address);
  const Type& type_of(std::uint64_t object);
  bool chain_has(const Type& type, std::string_view name, std::int64_t least_size);
  const Type& with_slots(std::uint64_t address);
  void learn_slots(std::uint64_t address, Type& type);
  void learn_fields(std::uint64_t address, Type& type);
  RemoteValue parse(std::uint64_t object, std::span<const std::byte> head, std::size_t max_length);
  std::optional<std::int64_t> parse_int(std::span<const std::byte> head) const;
  std::optional<ListHead> list_head(std::uint64_t object);
  std::optional<std::vector<std::uint64_t>> words(std::uint64_t address, std::uint64_t count);
  std::optional<std::vector<std::uint64_t>> deque_once(std::uint64_t object, std::size_t max);
  std::optional<std::vector<std::uint64_t>> set_once(std::uint64_t object, std::size_t max);
  std::optional<std::vector<DictEntry>> dict_once(std::uint64_t object, std::size_t max);
  std::optional<Store> managed_store(std::uint64_t object, const Type& type);
  std::optional<Store> store_of(std::uint64_t object, std::uint64_t type_address);
  std::optional<Store> shared_store(std::uint64_t type_address, std::uint64_t values);
  void learn_names(std::span<const DictEntry> entries);

  RemoteObjects& objects_;
  const PythonLayout& layout_;
  std::uint64_t none_ = 0;
  std::unordered_map<std::uint64_t, Type> types_;
  std::unordered_map<std::uint64_t, std::string> names_;  // of attributes: their keys are interned
};

}  // namespace dynprof
