// A bpftool skeleton that destroys (and so detaches) itself.
#pragma once

#include <memory>

namespace dynprof {

template <class S>
struct SkeletonDeleter {
  void operator()(S* skeleton) const { S::destroy(skeleton); }
};

template <class S>
using Skeleton = std::unique_ptr<S, SkeletonDeleter<S>>;

}  // namespace dynprof
