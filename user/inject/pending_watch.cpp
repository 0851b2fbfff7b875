#include "user/inject/pending_watch.h"

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "user/inject/target_memory.h"
#include "user/inject/waiting_thread.h"
#include "user/target/awaiting_target.h"
#include "user/target/thread_run_time.h"

namespace dynprof {
namespace {

// A thread that has run for so long has made one instruction, whatever interrupted it.
constexpr std::uint64_t kSurelyNs = 2'000'000;

}  // namespace

PendingWatch::PendingWatch(pid_t pid, const PendingData& data)
    : pid_(pid),
      token_(data.token),
      base_(data.base),
      address_(data.base + kDataOffset),
      memory_(pid) {}

std::optional<PendingState> PendingWatch::state() {
  std::array<std::byte, 24> head;
  if (!memory_.read(address_, head)) return std::nullopt;
  std::uint64_t token = 0;
  std::uint32_t state = 0;
  std::memcpy(&token, head.data(), sizeof token);
  std::memcpy(&state, head.data() + offsetof(PendingData, state), sizeof state);
  if (token != token_ || state > static_cast<std::uint32_t>(PendingState::kCancelled))
    return std::nullopt;
  return static_cast<PendingState>(state);
}

// Read here and now: memory that is not there yet would be read by another process (remote_memory.h), later.
bool PendingWatch::see_in_page() {
  if (seen_) return true;
  std::array<std::uint64_t, 3> head{};
  const iovec local = {head.data(), sizeof head};
  const iovec remote = {reinterpret_cast<void*>(address_), sizeof head};
  const AwaitingTarget awaiting(pid_);
  if (::process_vm_readv(pid_, &local, 1, &remote, 1, 0) != sizeof head || head[0] != token_ ||
      static_cast<std::uint32_t>(head[2]) == 0)
    return false;
  write_flag(offsetof(PendingData, seen));
  seen_ = true;
  return true;
}

void PendingWatch::see_gone() {
  if (gone_ || !state()) return;
  if (memory_.read<std::uint32_t>(address_ + offsetof(PendingData, left)) != 1U) return;
  const std::uint64_t ran_ns = thread_run_time_ns(pid_, pid_).value_or(0);
  if (!ran_when_left_ns_) ran_when_left_ns_ = ran_ns;
  if (!is_outside(ran_ns)) return;
  write_flag(offsetof(PendingData, gone));
  gone_ = true;
}

// Of the main thread, which has one instruction in this memory before it, or none any more.
bool PendingWatch::is_outside(std::uint64_t ran_ns) const {
  if (ran_ns > *ran_when_left_ns_ + kSurelyNs) return true;
  const auto waits = where_it_waits(pid_, pid_);
  return waits && (waits->pc < base_ || waits->pc >= base_ + kMappingBytes);
}

void PendingWatch::cancel() { write_flag(offsetof(PendingData, cancel)); }

std::string PendingWatch::error_text() {
  return memory_.read_c_string(address_ + offsetof(PendingData, error), sizeof PendingData::error)
      .value_or("?");
}

void PendingWatch::write_flag(std::uint64_t offset) {
  static_cast<void>(write_value<std::uint32_t>(pid_, address_ + offset, 1));
}

}  // namespace dynprof
