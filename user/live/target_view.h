// What the parts of a dump share: the process as it is now, and the stack that was read last.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "user/live/stack_reader.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_values.h"

namespace dynprof {

class TargetView {
 public:
  // Stacks are read from `process`, everything else by `live`.
  TargetView(RemoteMemory& process, RemoteObjects& live, const PythonRuntime& python)
      : runtime(python),
        objects(live),
        values(live, python),
        stacks(process, python),
        names(live, python) {}

  const PythonRuntime& runtime;
  RemoteObjects& objects;
  RemoteValues values;
  StackReader stacks;
  CodeNames names;

  RemoteMemory& memory() { return objects.memory(); }
  std::uint16_t python() const { return runtime.layout.python; }

  // Whether a frame is of the function of torch in the file that ends so. CPython 3.10 keeps no
  // qualified names: there only the last part is compared.
  bool is_function(const StackFrame& frame, std::string_view file, std::string_view qualname) const;

  // A local variable of a frame of the last stack, as it was then.
  struct Local {
    std::uint64_t place = 0;  // address of its slot
    std::uint64_t word = 0;   // what the slot held
    std::uint64_t value = 0;  // the object, through its cell where it has one
  };
  // nullopt: there is none of that name, or it is not set.
  std::optional<Local> local(const StackFrame& frame, std::string_view name);
};

}  // namespace dynprof
