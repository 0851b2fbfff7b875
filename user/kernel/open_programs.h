// Opens a skeleton, with the bytes of another object with the same programs and maps where this kernel cannot
// load the skeleton's own.
#pragma once

#include <bpf/libbpf.h>

#include <cstddef>

#include "user/kernel/skeleton.h"

namespace dynprof {

// `Plain`: the skeleton of the object that does without bpf_rdonly_cast (bpf/user_memory.bpf.h). Null: errno
// says why.
template <class S, class Plain>
Skeleton<S> open_programs(bool plain) {
  Skeleton<S> skeleton(S::open());
  if (!skeleton || !plain) return skeleton;
  bpf_object_skeleton* parts = skeleton->skeleton;
  bpf_object__close(skeleton->obj);
  skeleton->obj = nullptr;
  std::size_t size = 0;
  parts->data = const_cast<void*>(Plain::elf_bytes(&size));
  parts->data_sz = size;
  if (bpf_object__open_skeleton(parts, nullptr) != 0) return nullptr;
  return skeleton;
}

}  // namespace dynprof
