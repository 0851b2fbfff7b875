// Instances of some types among the container objects of the target's garbage collector. CPython links
// every such object into one of a few rings; each object's link lies 16 bytes before it. For objects
// that no module leads to: torch keeps guard managers in C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "user/generated/python_objects.h"

namespace dynprof {

struct GcInstances {
  // By type, in the order asked for. Each object had the type when it was read.
  std::vector<std::vector<std::uint64_t>> objects;
  // Every ring was walked to its end. A collection that runs meanwhile may still have hidden some.
  bool complete = false;
};

// `anchor` is any object known to be in a ring (a class, a module), where the walk begins. Looks at
// `max_objects` objects at most. Builds with a GIL; others give nothing.
GcInstances find_gc_instances(PythonObjects& python, std::uint64_t anchor,
                              std::span<const std::uint64_t> types, std::size_t max_objects,
                              LookDeadline deadline);

// Whether all of these are still in a ring: one that was freed is not. Can be false while a collection runs, which
// keeps something else in their links.
bool all_in_rings(RemoteMemory& memory, std::span<const std::uint64_t> objects);

}  // namespace dynprof
