// What the parts of a dump share: the process as it is now, and the stack that was read last.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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

  // What was read from locals of a stack, to check later that it was still valid when it was read.
  struct UsedLocals {
    std::size_t frames_from_root = 0;  // the frames they are of are among these
    std::vector<std::pair<std::uint64_t, std::uint64_t>> words;  // address, content
    void add(const Local& local, std::size_t depth_from_root) {
      words.emplace_back(local.place, local.word);
      frames_from_root = depth_from_root;
    }
  };
  // Whether `now`, read right before this call, still has the calls and locals of `then`.
  bool still_holds(const UsedLocals& used, const RemoteStack& then, const RemoteStack& now);
};

}  // namespace dynprof
