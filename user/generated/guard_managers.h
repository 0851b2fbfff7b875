// The guards of compiled code: torch's GuardManagerWrappers. Two ways lead to them: the finalizers
// that drop a compiled code when an object it was specialised on dies (weakref.finalize._registry),
// and, for guards without such an object, the garbage collector's lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "user/generated/python_objects.h"

namespace dynprof {

struct GuardManager {
  std::uint64_t manager = 0;        // a GuardManagerWrapper
  std::uint64_t check_manager = 0;  // its CheckFunctionManager, 0: not known
  // Those of its cache entry, where it can be identified: docs/concepts/generated-code.md. Else 0 and "".
  std::uint64_t code = 0;
  std::string trace_id;
};

// Of the objects that the garbage collector knows those that guards are found by. They may have been freed since.
struct GuardObjects {
  std::vector<std::uint64_t> managers, lists;
  bool complete = false;  // else some may be missing
};
// Looks at `gc_objects` objects at most.
GuardObjects find_guard_objects(PythonObjects& python, std::size_t gc_objects,
                                LookDeadline deadline);

// Those of `objects` that are guard managers still, and those that finalizers lead to.
std::vector<GuardManager> find_guard_managers(PythonObjects& python, const GuardObjects& objects,
                                              LookDeadline deadline);

// `code_parts`, and for shapes the expressions with the user's line that requires them.
struct GuardText {
  std::vector<std::string> parts;
  std::vector<std::string> shape_parts;
  bool truncated = false;
};
std::optional<GuardText> read_guards(PythonObjects& python, const GuardManager& guards,
                                     std::size_t max_bytes);

}  // namespace dynprof
