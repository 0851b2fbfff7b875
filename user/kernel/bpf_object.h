// Opens and loads the BPF objects of this program, from the skeletons that bpftool makes of them. All go through
// here: a map that two objects declare is one map, and a failure has the same text whatever failed.
#pragma once

#include <bpf/libbpf.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "symbolizer/base/result.h"

namespace dynprof {

template <class S>
struct SkeletonDeleter {
  void operator()(S* skeleton) const { S::destroy(skeleton); }
};
// Destroys (and so detaches) itself.
template <class S>
using Skeleton = std::unique_ptr<S, SkeletonDeleter<S>>;

// `what` failed with this errno, of either sign; with what libbpf said since start_of_bpf_call(), and a hint.
Error bpf_error(const std::string& what, int value);
// What libbpf says is kept from here on, instead of printed.
void start_of_bpf_call();
// The kernel did not load them.
Error programs_refused(const char* programs, int value);

// How many CPUs per-CPU data is of, at least 1.
std::uint32_t possible_cpus();
// Each is an array with one entry per CPU. Before loading.
void size_by_cpus(std::initializer_list<bpf_map*> maps);

// `programs` names them in texts: "sampling".
template <class S>
Result<Skeleton<S>> open_object(const char* programs) {
  start_of_bpf_call();
  Skeleton<S> skeleton(S::open());
  if (!skeleton) return bpf_error("cannot open the " + std::string(programs) + " programs", errno);
  return skeleton;
}

// With `plain` the programs are those of the object `Plain`, which has the same programs and maps but no
// bpf_rdonly_cast (bpf/user_memory.bpf.h): for a kernel that cannot load those of S.
template <class S, class Plain>
Result<Skeleton<S>> open_object(const char* programs, bool plain) {
  ASSIGN_OR_RETURN(Skeleton<S> skeleton, open_object<S>(programs));
  if (!plain) return skeleton;
  bpf_object_skeleton* parts = skeleton->skeleton;
  bpf_object__close(skeleton->obj);
  skeleton->obj = nullptr;
  std::size_t size = 0;
  parts->data = const_cast<void*>(Plain::elf_bytes(&size));
  parts->data_sz = size;
  if (int rc = bpf_object__open_skeleton(parts, nullptr))
    return bpf_error("cannot open the " + std::string(programs) + " programs", rc);
  return skeleton;
}

// These maps are those of the same name in another object, whose descriptors `fd_of` (const char*) gives; -1: it
// has none.
template <class FdOf>
Result<void> share_maps(std::initializer_list<bpf_map*> maps, const FdOf& fd_of) {
  for (bpf_map* map : maps) {
    if (int rc = bpf_map__reuse_fd(map, fd_of(bpf_map__name(map))))
      return bpf_error("cannot share BPF map " + std::string(bpf_map__name(map)), rc);
  }
  return {};
}

// After maps are shared and constants set.
template <class S>
Result<void> load_object(const char* programs, S& skeleton) {
  if (int rc = S::load(&skeleton)) return programs_refused(programs, rc);
  return {};
}

// Runs a program that is attached to nothing. Its return value; nothing: the kernel did not run it, see errno.
std::optional<std::uint32_t> run_once(const bpf_program* program);

}  // namespace dynprof
