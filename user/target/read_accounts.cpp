#include "user/target/read_accounts.h"

#include <algorithm>

#include "user/target/read_losses.h"

namespace dynprof {
namespace {

ReadLimit rest(const ReadLimit& limit, const ReadLimit& used) {
  return {limit.bytes - std::min(limit.bytes, used.bytes),
          limit.time - std::min(limit.time, used.time)};
}

ReadLimit least(const ReadLimit& a, const ReadLimit& b) {
  return {std::min(a.bytes, b.bytes), std::min(a.time, b.time)};
}

}  // namespace

ReadAccounts::Reading::~Reading() {
  if (budget_.refused()) ReadLosses::of_program().add(ReadLoss::kFileCut, pid_);
  // Where a read was refused nothing is left, whether it was of bytes or of time.
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      ReadBudget::Clock::now() - began_ + std::chrono::microseconds(999));
  accounts_.pay(pid_, {bytes_ - budget_.left(), took});
}

ReadAccounts::Reading ReadAccounts::begin(pid_t pid) {
  const std::lock_guard lock(mutex_);
  ReadLimit limit = least(limits_.file, rest(limits_.all, used_by_all_));
  if (pid != 0) {
    const auto known = used_.find(pid);
    limit = least(limit, rest(limits_.process, known == used_.end() ? ReadLimit{} : known->second));
  }
  return Reading(*this, pid, limit);
}

pid_t ReadAccounts::richest(std::span<const pid_t> pids) {
  const std::lock_guard lock(mutex_);
  const auto used = [this](pid_t pid) {
    const auto known = used_.find(pid);
    return known == used_.end() ? ReadLimit{} : known->second;
  };
  return *std::min_element(pids.begin(), pids.end(),
                           [&](pid_t a, pid_t b) { return used(a).time < used(b).time; });
}

void ReadAccounts::pay(pid_t pid, const ReadLimit& used) {
  const std::lock_guard lock(mutex_);
  if (used_.size() >= kMaxProcesses) used_.clear();
  for (ReadLimit* account : {&used_[pid], &used_by_all_}) {
    account->bytes += used.bytes;
    account->time += used.time;
  }
}

}  // namespace dynprof
