// Events as the BPF programs send them.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "bpf/events.h"

namespace dynprof {

using EventBytes = std::vector<std::byte>;

template <class Event>
EventBytes event_bytes(Event event, std::size_t size = sizeof(Event)) {
  event.header.size = static_cast<std::uint32_t>(size);
  EventBytes bytes(size);
  std::memcpy(bytes.data(), &event, std::min(size, sizeof event));
  return bytes;
}

inline dp_event_header event_header_of(std::uint16_t kind, pid_t pid, std::uint64_t time_ns) {
  dp_event_header header = {};
  header.kind = kind;
  header.pid = header.tid = static_cast<std::uint32_t>(pid);
  header.time_ns = time_ns;
  return header;
}

// A thread in the kernel at one address, without Python.
inline EventBytes sample_event(pid_t pid, std::uint64_t time_ns,
                               std::uint16_t kind = DP_EVENT_SAMPLE) {
  dp_sample sample = {};
  sample.header = event_header_of(kind, pid, time_ns);
  sample.kernel_count = 1;
  EventBytes bytes = event_bytes(sample, sizeof sample + sizeof(std::uint64_t));
  const std::uint64_t address = 0xffffffff81000000;
  std::memcpy(bytes.data() + sizeof sample, &address, sizeof address);
  return bytes;
}

inline EventBytes process_event(dp_event_kind kind, pid_t pid, std::uint64_t time_ns,
                                pid_t parent = 0) {
  dp_process_event event = {};
  event.header = event_header_of(static_cast<std::uint16_t>(kind), pid, time_ns);
  event.parent_pid = event.parent_tid = static_cast<std::uint32_t>(parent);
  std::memcpy(event.comm, "worker", 6);
  return event_bytes(event);
}

inline EventBytes exec_event(pid_t pid, std::uint64_t time_ns, std::string_view exe) {
  dp_process_event event = {};
  event.header = event_header_of(DP_EVENT_EXEC, pid, time_ns);
  std::memcpy(event.comm, "other", 5);
  EventBytes bytes = event_bytes(event, sizeof(dp_exec_event));
  std::memcpy(bytes.data() + sizeof event, exe.data(),
              std::min<std::size_t>(exe.size(), DP_EXE_BYTES));
  return bytes;
}

inline EventBytes wait_event(pid_t pid, std::uint64_t begin_ns, std::uint64_t end_ns) {
  dp_wait_event event = {};
  event.header = event_header_of(DP_EVENT_WAIT, pid, end_ns);
  event.begin_ns = begin_ns;
  event.length_ns = end_ns - begin_ns;
  event.count = 1;
  return event_bytes(event);
}

}  // namespace dynprof
