// The few kinds of Python object that lead from what torch keeps in its modules to what a compile
// made: functions and their closures, bound methods, partials, texts, a CompileId. They are not
// trusted: types are checked first, and in doubt the result is "nothing".
//
// More than 15 public members: one for each kind of object and what is read of it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "user/generated/deadline.h"
#include "user/target/code_reader.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"
#include "user/target/remote_values.h"

namespace dynprof {

struct RemoteText {
  std::string text;
  bool truncated = false;
};

// Short-lived, as RemoteValues is: one for each search.
class PythonObjects {
 public:
  PythonObjects(RemoteObjects& objects, const PythonRuntime& runtime);

  RemoteObjects& objects() { return objects_; }
  RemoteValues& values() { return values_; }
  CodeReader& codes() { return codes_; }
  const PythonRuntime& runtime() const { return runtime_; }

  // A str object: at most its first `max_bytes` bytes of UTF-8, more or less. Nothing when it was freed.
  std::optional<RemoteText> text(std::uint64_t object, std::size_t max_bytes);
  // Of an attribute: nothing where there is none or it is no string, or the object was freed.
  std::optional<RemoteText> text_attribute(std::uint64_t object, std::string_view name,
                                           std::size_t max_bytes);

  // By the reference count, the first word of an object in a build with the GIL. That of a freed one is
  // zero, or a link of the allocator's list of free blocks. From 3.12 on the upper half may hold flags.
  bool alive(std::uint64_t object);

  // A global of a module of the main interpreter's sys.modules.
  std::optional<std::uint64_t> global(std::string_view module, std::string_view name);
  // An attribute of an instance that is an attribute of another: "shape_code_parts", "exprs".
  std::optional<std::uint64_t> attribute(std::uint64_t object,
                                         std::initializer_list<std::string_view> names);

  // What str() gives for a CompileId, else "".
  std::string trace_id(std::uint64_t object);

  // Of a function: its code, its free variables with what their cells hold.
  std::optional<std::uint64_t> function_code(std::uint64_t function);
  std::vector<NamedValue> closure(std::uint64_t function);
  // The __dict__ of a function, where it has one.
  std::optional<std::uint64_t> function_dict(std::uint64_t function);
  // __self__ and __func__ of a bound method, a classmethod or staticmethod's function.
  std::optional<std::uint64_t> method_self(std::uint64_t method);
  std::optional<std::uint64_t> method_function(std::uint64_t method);
  // __self__ of a builtin_function_or_method: for most the module it comes from.
  std::optional<std::uint64_t> builtin_self(std::uint64_t builtin);
  // func, args and keywords of a functools.partial.
  std::vector<std::uint64_t> partial_parts(std::uint64_t partial);

  // What an ExactWeakKeyDictionary of torch's holds: id(key) -> value, for keys that still live.
  // Nothing when it is none, or changes all the while.
  std::optional<std::vector<DictEntry>> weak_key_entries(std::uint64_t object, std::size_t max);

 private:
  std::optional<std::uint64_t> field(std::uint64_t object, std::uint32_t offset);
  const std::vector<std::string>& free_names(std::uint64_t code);

  RemoteObjects& objects_;
  const PythonRuntime& runtime_;
  RemoteValues values_;
  CodeReader codes_;
  std::unordered_map<std::uint64_t, std::vector<std::string>> free_names_;
};

}  // namespace dynprof
