#include "user/target/awaiting_target.h"

#include "user/target/clock.h"

namespace dynprof {
namespace {

// A place in waits() for as long as the thread lives.
class Place {
 public:
  Place() {
    for (std::size_t i = 0; i < taken().size() && wait_ == nullptr; ++i)
      if (!taken()[i].exchange(true)) wait_ = &AwaitingTarget::waits()[number_ = i];
  }
  ~Place() {
    if (wait_ != nullptr) taken()[number_] = false;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  AwaitingTarget::Wait* wait() const { return wait_; }

 private:
  static std::array<std::atomic<bool>, AwaitingTarget::kMaxThreads>& taken() {
    static std::array<std::atomic<bool>, AwaitingTarget::kMaxThreads> taken{};
    return taken;
  }

  AwaitingTarget::Wait* wait_ = nullptr;
  std::size_t number_ = 0;
};

}  // namespace

std::array<AwaitingTarget::Wait, AwaitingTarget::kMaxThreads>& AwaitingTarget::waits() {
  static std::array<Wait, kMaxThreads> waits;
  return waits;
}

AwaitingTarget::AwaitingTarget(pid_t pid) {
  static thread_local Place place;
  // One inside another is part of it.
  wait_ = place.wait() != nullptr && place.wait()->since_ns.load() == 0 ? place.wait() : nullptr;
  if (wait_ == nullptr) return;
  wait_->pid.store(pid, std::memory_order_relaxed);
  wait_->since_ns.store(monotonic_ns(), std::memory_order_release);
}

AwaitingTarget::~AwaitingTarget() {
  if (wait_ != nullptr) wait_->since_ns.store(0, std::memory_order_release);
}

}  // namespace dynprof
