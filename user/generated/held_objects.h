// The objects of a process as they were when each page was first asked for: a search that looks at many small objects
// takes some reads of pages instead of five reads for each object. What it finds may have been freed meanwhile, and
// has to be confirmed by the process itself: PythonObjects::alive().
#pragma once

#include "user/generated/python_objects.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {

class HeldObjects {
 public:
  // `live` outlives it.
  explicit HeldObjects(PythonObjects& live)
      : pages_(live.objects().memory()),
        objects_(pages_, live.objects().layout()),
        python_(objects_, live.runtime()) {
    objects_.set_str_type(live.runtime().str_type);
  }

  PythonObjects& python() { return python_; }

 private:
  SnapshotMemory pages_;
  RemoteObjects objects_;
  PythonObjects python_;
};

}  // namespace dynprof
