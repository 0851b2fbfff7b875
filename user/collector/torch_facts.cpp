#include "user/collector/torch_facts.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "user/collector/clock.h"
#include "user/generated/find_generated.h"
#include "user/generated/merge_generated.h"
#include "user/history/compile_history.h"
#include "user/preflight/capabilities.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kHistoryNs = kSecondNs;
constexpr std::uint64_t kShareOfTime = 10;  // a tenth, for reading it after compiles
// torch 2.6 to 2.15 notes a compile just after its outermost phase.
constexpr std::uint64_t kUntilNotedNs = kSecondNs / 200;
constexpr std::uint64_t kQuietNs = kSecondNs / 5;
constexpr std::uint64_t kGeneratedNs = 5 * kSecondNs;
constexpr std::chrono::milliseconds kReadAtMost{1000};
// What is kept of it, for each process.
constexpr std::size_t kGeneratedBytes = 24u << 20;

std::string to_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void TorchFacts::compiled(std::uint64_t now_ns) {
  history_is_old_ = generated_is_old_ = true;
  last_compile_ns_ = now_ns;
}

void TorchFacts::compile_ended(std::uint64_t now_ns) {
  compiled(now_ns);
  next_history_ns_ =
      std::max(std::min(next_history_ns_, soonest_history_ns_), now_ns + kUntilNotedNs);
}

void TorchFacts::refresh(const PythonRuntime& python, std::uint64_t now_ns) {
  if (reading_.valid()) {
    if (reading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    take(reading_.get());
  }
  const bool history = history_is_old_ && now_ns >= next_history_ns_;
  // Between two compiles, or among them when they go on and on: the process may end at any time.
  const bool generated =
      generated_is_old_ && last_compile_ns_ != 0 && now_ns >= next_generated_ns_ &&
      (now_ns >= last_compile_ns_ + kQuietNs || now_ns >= next_generated_ns_ + kGeneratedNs);
  if (!history && !generated) return;
  // What compiles from now on may not be in it any more.
  if (history) history_is_old_ = false, next_history_ns_ = now_ns + kHistoryNs;
  if (generated) generated_is_old_ = false, next_generated_ns_ = now_ns + kGeneratedNs;
  reading_ = std::async(std::launch::async, [python, history, generated] {
    keep_only_reading();
    setpriority(PRIO_PROCESS, 0, 0);  // of this thread: it need not be quick
    ProcessMemory memory(python.pid);
    RemoteObjects objects(memory, python.layout);
    objects.set_str_type(python.str_type);
    return read(objects, python, history, generated, false);
  });
}

void TorchFacts::refresh_at_attach(RemoteObjects& objects, const PythonRuntime& python) {
  history_is_old_ = false;
  take(read(objects, python, true, false, false));
}

void TorchFacts::refresh_at_end(RemoteObjects& objects, const PythonRuntime& python) {
  if (reading_.valid()) take(reading_.get());
  take(read(objects, python, true, true, true));
}

TorchFacts::Reading TorchFacts::read(RemoteObjects& objects, const PythonRuntime& python,
                                     bool history, bool generated, bool at_end) {
  Reading reading;
  if (history) {
    const std::uint64_t began = monotonic_ns();
    if (auto found = read_compile_history(objects, python))
      reading.history = to_text(to_json(*found));
    reading.history_read_ns = monotonic_ns();
    reading.history_took_ns = reading.history_read_ns - began;
  }
  if (generated) {
    GeneratedLimits limits;
    limits.total_bytes = kGeneratedBytes;
    if (!at_end) limits.time = kReadAtMost;
    reading.generated = find_generated(objects, python, python.pid, limits);
  }
  return reading;
}

void TorchFacts::take(Reading reading) {
  if (reading.history_read_ns != 0)
    soonest_history_ns_ = reading.history_read_ns + kShareOfTime * reading.history_took_ns;
  if (!reading.history.empty()) history_ = std::move(reading.history);
  if (!reading.generated) return;
  GeneratedLimits limits;
  limits.total_bytes = kGeneratedBytes;
  generated_ = merge_generated(std::move(generated_), std::move(*reading.generated), limits);
}

void TorchFacts::write_history(const char* when, pid_t pid, RecordingWriter& writer) const {
  if (history_.empty()) return;
  Fact fact;
  fact.pid = pid;
  fact.time_ns = monotonic_ns();
  fact.kind = writer.string("history");
  fact.name = writer.string(when);
  fact.body = writer.blob(history_);
  writer.fact(fact);
}

void TorchFacts::write_at_attach(pid_t pid, RecordingWriter& writer) const {
  write_history("attach", pid, writer);
}

void TorchFacts::write_at_end(pid_t pid, RecordingWriter& writer) const {
  write_history("detach", pid, writer);
  for (const GeneratedFile& file : generated_.files) {
    Fact fact;
    fact.pid = pid;
    fact.time_ns = monotonic_ns();
    fact.kind = writer.string("generated");
    fact.name = writer.string(to_text({{"trace_id", file.trace_id},
                                       {"kind", kind_name(file.kind)},
                                       {"direction", direction_name(file.direction)},
                                       {"name", file.name},
                                       {"origin", file.origin},
                                       {"problem", file.problem},
                                       {"truncated", file.truncated}}));
    fact.body = writer.blob(file.content);
    writer.fact(fact);
  }
}

}  // namespace dynprof
