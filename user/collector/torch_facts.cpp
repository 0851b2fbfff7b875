#include "user/collector/torch_facts.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "user/collector/clock.h"
#include "user/generated/find_generated.h"
#include "user/history/compile_history.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kHistoryNs = kSecondNs;
constexpr std::uint64_t kQuietNs = kSecondNs;
constexpr std::uint64_t kGeneratedNs = 10 * kSecondNs;
// The ring buffer holds two seconds of samples: nothing may keep us from it for longer.
constexpr std::chrono::milliseconds kReadAtMost{500};
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

void TorchFacts::refresh(RemoteObjects& objects, const PythonRuntime& python,
                         std::uint64_t now_ns) {
  if (history_is_old_ && now_ns >= next_history_ns_) {
    next_history_ns_ = now_ns + kHistoryNs;
    read_history(objects, python);
  }
  if (generated_is_old_ && now_ns >= next_generated_ns_ && now_ns >= last_compile_ns_ + kQuietNs &&
      last_compile_ns_ != 0) {
    next_generated_ns_ = now_ns + kGeneratedNs;
    read_generated(objects, python, false);
  }
}

void TorchFacts::refresh_at_end(RemoteObjects& objects, const PythonRuntime& python) {
  read_history(objects, python);
  read_generated(objects, python, true);
}

void TorchFacts::read_history(RemoteObjects& objects, const PythonRuntime& python) {
  auto history = read_compile_history(objects, python);
  if (!history) return;
  history_ = to_text(to_json(*history));
  history_is_old_ = false;
}

void TorchFacts::read_generated(RemoteObjects& objects, const PythonRuntime& python, bool at_end) {
  GeneratedLimits limits;
  limits.total_bytes = kGeneratedBytes;
  if (!at_end) limits.time = kReadAtMost;
  GeneratedCode found = find_generated(objects, python, python.pid, limits);
  // A process that is ending shows less and less: the most that was seen is kept.
  if (found.files.size() < generated_.files.size() && at_end) return;
  generated_ = std::move(found);
  generated_is_old_ = false;
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
