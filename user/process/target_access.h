// Readers of a followed process's memory, made when its Python is found. For followed_process.cpp and
// followed_torch.cpp alone.
#pragma once

#include "user/process/followed_process.h"

namespace dynprof {

struct FollowedProcess::Access {
  Access(pid_t pid, const PythonRuntime& python)
      : memory(pid), objects(memory, python.layout), reader(objects, python.code_type) {
    objects.set_str_type(python.str_type);
  }
  ProcessMemory memory;
  RemoteObjects objects;
  CodeReader reader;
};

}  // namespace dynprof
