// How torch keeps a CompileId and a CompileContext in this process: a NamedTuple (2.6), instance
// attributes (2.9), slots (2.13). Found by what the classes are, not by torch's version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bpf/events.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

struct TorchTarget {
  std::string version;       // "2.13.0+cpu", "" when torch.version is not imported yet
  dp_torch_layout layout{};  // types are 0 and paths empty for what is missing
  // False while something is not there yet: torch._guards is not imported, or no instance was made,
  // so that CPython has not placed its attributes. Ask again later.
  bool complete = false;
  std::string missing;  // for logs: what is not known
};

// nullopt: torch is not imported (yet).
std::optional<TorchTarget> resolve_torch(RemoteObjects& objects, const PythonRuntime& runtime);

// The object a path leads to, as the kernel side walks it.
std::optional<std::uint64_t> follow_path(RemoteMemory& memory, std::uint64_t object,
                                         const dp_path& path);

// Where instances of a class keep an attribute. `by_dict` is the way when the instance has a
// dictionary of its own (someone looked at its __dict__); no steps where there is no such way.
struct AttributePaths {
  dp_path path{};
  dp_path by_dict{};
};
std::optional<AttributePaths> attribute_paths(RemoteObjects& objects, std::uint64_t type,
                                              std::string_view name);

}  // namespace dynprof
