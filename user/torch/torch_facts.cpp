#include "user/torch/torch_facts.h"

#include <malloc.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "user/generated/find_generated.h"
#include "user/generated/merge_generated.h"
#include "user/history/metric_fields.h"
#include "user/kernel/thread_priority.h"
#include "user/preflight/capabilities.h"
#include "user/target/clock.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
// Between two readings of the history; more by so much as the last one took: 0.3 % of a CPU. What a reset takes away
// of it (torch 2.6's graph breaks, for one) is known only if it was read before; each compile is noted at its end.
constexpr std::uint64_t kHistoryNs = kSecondNs;
constexpr std::uint64_t kHistoryTimesAsLong = 300;
// torch 2.6 to 2.15 notes a compile some 2 ms after the end of its outermost phase. It takes longer where the target
// waits for a CPU.
constexpr std::uint64_t kUntilNotedNs[] = {2'000'000,  1'000'000,  2'000'000,   5'000'000,
                                           10'000'000, 30'000'000, 100'000'000, 300'000'000};
constexpr std::size_t kNotesKept = 64;  // as many as torch keeps
// Looks begin between two compiles, or among them when these go on and on; the whole look when nothing has
// compiled for a while.
constexpr std::uint64_t kPauseNs = kSecondNs / 5;
constexpr std::uint64_t kQuietNs = 2 * kSecondNs;
// Between two looks; more by so much as the last one took: 0.3 % of a CPU.
constexpr std::uint64_t kLookNs = 5 * kSecondNs;
constexpr std::uint64_t kTimesAsLong = 300;
constexpr std::chrono::milliseconds kQuickAtMost{300};
constexpr std::chrono::milliseconds kWholeAtMost{1000};
// By the clock, where the machine is busy: the end of a recording waits for a look.
constexpr int kLookTimesLonger = 4;
// What is kept of it, for each process.
constexpr std::size_t kGeneratedBytes = 24u << 20;

// Of the calling thread: on a busy machine a reading takes longer, but costs no more.
std::uint64_t cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

std::string to_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::ordered_json describe(const GeneratedFile& file) {
  nlohmann::ordered_json json = {{"trace_id", file.trace_id},
                                 {"kind", kind_name(file.kind)},
                                 {"direction", direction_name(file.direction)},
                                 {"name", file.name},
                                 {"origin", file.origin},
                                 {"kernel", file.kernel},
                                 {"problem", file.problem},
                                 {"truncated", file.truncated}};
  if (!file.function.empty()) json["function"] = file.function;
  if (file.first_line > 0) json["first_line"] = file.first_line;
  for (const GeneratedCall& call : file.calls) {
    json["calls"].push_back({{"name", call.name},
                             {"graph", call.graph},
                             {"function", call.function},
                             {"compiled_as", call.compiled_as}});
  }
  return json;
}

bool has_row(const CompileHistory& history, const HistoryRow& row) {
  return std::any_of(history.rows.begin(), history.rows.end(), [&](const HistoryRow& other) {
    return other.trace_id == row.trace_id && other.kind == row.kind &&
           other.start_us == row.start_us;
  });
}

}  // namespace

void TorchFacts::compiled(std::uint64_t now_ns) {
  // The first look waits for a pause as the others do: it reads most, and its target may be compiling all the time.
  if (next_look_ns_ == 0) next_look_ns_ = now_ns;
  history_is_old_ = true;
  generated_until_now_ = Look::kNone;
  last_compile_ns_ = now_ns;
}

void TorchFacts::compile_ended(std::uint64_t now_ns) {
  compiled(now_ns);
  // A look while the first compile was open could not see what it made: it does not delay the next one.
  if (!std::exchange(any_ended_, true)) next_look_ns_ = now_ns;
  note_tries_ = 0;
  ++ended_without_note_;
  note_due_ns_ = now_ns + kUntilNotedNs[0];
}

void TorchFacts::read_note(RemoteObjects& objects, const PythonRuntime& python,
                           std::uint64_t now_ns) {
  if (now_ns < note_due_ns_) return;
  std::vector<HistoryRow> rows = new_rows_.read(objects, python, ended_without_note_);
  ended_without_note_ -= std::min(ended_without_note_, rows.size());
  if (ended_without_note_ > 0 && ++note_tries_ < static_cast<int>(std::size(kUntilNotedNs))) {
    note_due_ns_ = monotonic_ns() + kUntilNotedNs[note_tries_];
  } else {  // some compiles get no note: the next ones are not looked for longer because of them
    ended_without_note_ = 0;
    note_due_ns_ = UINT64_MAX;
  }
  for (HistoryRow& row : rows) notes_.push_back(std::move(row));
  while (notes_.size() > kNotesKept) notes_.pop_front();
}

TorchFacts::Wanted TorchFacts::wanted(std::uint64_t now_ns, bool compiling) const {
  Wanted wanted{.history = history_is_old_ && now_ns >= next_history_ns_,
                .times_longer = kLookTimesLonger};
  if (last_compile_ns_ == 0 || now_ns < next_look_ns_) return wanted;
  const std::uint64_t pause_ns = now_ns - std::min(now_ns, last_compile_ns_);
  const bool paused = !compiling && pause_ns >= kPauseNs;
  if (!paused && now_ns < next_look_ns_ + kLookNs) return wanted;
  if (!compiling && pause_ns >= kQuietNs && generated_until_now_ != Look::kWhole) {
    wanted.generated = Look::kWhole;
    wanted.time = kWholeAtMost;
  } else if (generated_until_now_ == Look::kNone) {
    wanted.generated = Look::kQuick;
    wanted.time = kQuickAtMost;
  }
  return wanted;
}

void TorchFacts::refresh(const PythonRuntime& python, std::uint64_t now_ns, bool compiling) {
  if (reading_.valid()) {
    if (reading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    take(reading_.get());
  }
  const Wanted now = wanted(now_ns, compiling);
  if (!now.history && now.generated == Look::kNone) return;
  // What compiles from now on may not be in it any more.
  if (now.history) history_is_old_ = false;
  generated_until_now_ = std::max(generated_until_now_, now.generated);
  begin_reading(python, now, false);
}

void TorchFacts::begin_reading(const PythonRuntime& python, Wanted wanted, bool urgent) {
  reading_ = std::async(std::launch::async, [python, wanted, urgent] {
    ::prctl(PR_SET_NAME, "dynprof-facts");
    keep_only_reading();
    if (!urgent) set_background_priority();
    ProcessMemory memory(python.pid);
    RemoteObjects objects(memory, python.layout);
    objects.set_str_type(python.str_type);
    return read(objects, python, wanted);
  });
}

void TorchFacts::refresh_at_attach(RemoteObjects& objects, const PythonRuntime& python) {
  history_is_old_ = false;
  take(read(objects, python, {.history = true}));
}

void TorchFacts::refresh_at_end(RemoteObjects& objects, const PythonRuntime& python,
                                bool in_thread) {
  stop_reading();
  const bool nothing_new = told_ && generated_until_now_ == Look::kWhole && last_look_complete_;
  const Wanted all = {.history = true,
                      .generated = nothing_new ? Look::kNone : Look::kWhole,
                      .time = GeneratedLimits().time};
  if (in_thread)
    begin_reading(python, all, true);
  else
    take(read(objects, python, all));
}

void TorchFacts::stop_reading() {
  if (reading_.valid()) take(reading_.get());
}

TorchFacts::Reading TorchFacts::read(RemoteObjects& objects, const PythonRuntime& python,
                                     Wanted wanted) {
  const std::uint64_t begin_ns = cpu_ns();
  Reading reading;
  reading.of = wanted;
  if (wanted.history) {
    if (auto found = read_compile_history(objects, python)) reading.history = std::move(*found);
    reading.history_took_ns = cpu_ns() - begin_ns;
  }
  if (wanted.generated != Look::kNone) {
    GeneratedLimits limits;
    limits.total_bytes = kGeneratedBytes;
    limits.time = wanted.time;
    limits.by_the_clock = wanted.time * wanted.times_longer;
    if (wanted.generated == Look::kQuick) limits.gc_objects = 0;
    reading.generated = find_generated(objects, python, python.pid, limits);
  }
  reading.took_ns = cpu_ns() - begin_ns - reading.history_took_ns;
  return reading;
}

void TorchFacts::take(Reading reading) {
  if (reading.of.history) {
    next_history_ns_ =
        monotonic_ns() + std::max(kHistoryNs, kHistoryTimesAsLong * reading.history_took_ns);
  }
  if (reading.of.generated != Look::kNone)
    next_look_ns_ = monotonic_ns() + std::max(kLookNs, kTimesAsLong * reading.took_ns);
  take_history(std::move(reading.history));
  if (!reading.generated) return;
  last_look_complete_ = reading.generated->missing.empty();
  GeneratedLimits limits;
  limits.total_bytes = kGeneratedBytes;
  generated_ = merge_generated(std::move(generated_), std::move(*reading.generated), limits);
  malloc_trim(0);  // what was read for it, often tens of megabytes, lies around what is kept of it
}

void TorchFacts::take_history(std::optional<CompileHistory> found) {
  if (!found) return;
  // An interpreter that ends clears its modules first: what is left of them is no news.
  const bool cleared = !found->dynamo_imported || !found->problems.empty();
  if (history_ && !history_->rows.empty() && found->rows.empty() && cleared) return;
  history_ = std::move(found);
}

void TorchFacts::write_history(const char* when, pid_t pid, RecordingWriter& writer) const {
  if (!history_ && notes_.empty()) return;
  CompileHistory history = history_.value_or(CompileHistory());
  history.pid = pid;
  history.dynamo_imported = history.dynamo_imported || !notes_.empty();
  for (const HistoryRow& note : notes_)
    if (!has_row(history, note)) history.rows.push_back(note);
  name_by_frame(history.rows);
  Fact fact;
  fact.pid = pid;
  fact.time_ns = monotonic_ns();
  fact.kind = writer.string("history");
  fact.name = writer.string(when);
  fact.body = writer.blob(to_text(to_json(history)));
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
    fact.name = writer.string(to_text(describe(file)));
    fact.body = writer.blob(file.content);
    writer.fact(fact);
  }
}

}  // namespace dynprof
