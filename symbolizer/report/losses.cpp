// How complete the recording is: one line, and the whole list where it is asked for.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "bpf/events.h"
#include "symbolizer/recording/read_counters.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

struct Counter {
  const char* name;
  const char* sentence;
};
constexpr Counter kCounters[] = {
#define DYNPROF_COUNTER(id, name, sentence) {name, sentence},
    DP_COUNTERS(DYNPROF_COUNTER) DYNPROF_READ_COUNTERS(DYNPROF_COUNTER)
#undef DYNPROF_COUNTER
    // Of the recording's writer.
    {"samples_not_written", "samples not written: the file could not grow"},
};

// What counters count that is no loss: a compiler has no Python, a thread of OpenMP no Python state.
constexpr std::string_view kNoLoss[] = {"samples", "not_python", "no_thread_state", "no_frame",
                                        "call_beginning"};
// Whole samples.
constexpr std::string_view kLostSamples[] = {"ring_full", "no_scratch", "samples_not_written"};
// Counted once for each sample that is marked so too.
constexpr std::string_view kCutSamples[] = {"frame_fault",      "code_fault",   "truncated",
                                            "tail_call_failed", "markers_full", "unmerged"};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string sentence_of(const std::string& name) {
  for (const Counter& counter : kCounters) {
    if (name == counter.name) return counter.sentence;
  }
  return name;  // of another version
}

void append_list(std::string& out, const Recording& recording, bool losses, const char* title) {
  bool any = false;
  for (const auto& [name, count] : recording.trailer().counters) {
    if (count == 0 || name == "samples" || is_in(kNoLoss, name) == losses) continue;
    if (!any) append_comment(out, title);
    any = true;
    append_comment(out, fmt::format("  {:>10}  {}", grouped(count), sentence_of(name)));
  }
  if (!any && losses) append_comment(out, "Lost or incomplete: nothing");
}

// Rounded down: a lost sample shows.
std::string rounded_down(std::uint64_t part, std::uint64_t whole) {
  const auto tenths = static_cast<std::uint64_t>(1000 * static_cast<long double>(part) /
                                                 static_cast<long double>(whole));
  return fmt::format("{}.{} %", tenths / 10, tenths % 10);
}

void append_line(std::string& out, const Selection& selection) {
  const Recording& recording = selection.attribution().recording();
  const std::uint64_t cut_short = selection.analysis.counts().incomplete();
  std::uint64_t lost = 0, kinds = 0;
  for (const auto& [name, count] : recording.trailer().counters) {
    if (count == 0 || is_in(kNoLoss, name)) continue;
    if (is_in(kLostSamples, name)) {
      lost += count;
    } else if (!is_in(kCutSamples, name) && !name.starts_with("native_")) {
      ++kinds;
    }
  }
  const std::uint64_t all = recording.sample_count() + lost;
  std::string text =
      all == 0 ? "No samples"
               : fmt::format("{} of samples complete", rounded_down(all - cut_short - lost, all));
  std::string why;
  if (cut_short > 0) why += fmt::format("{} with a stack cut short", grouped(cut_short));
  if (lost > 0) why += fmt::format("{}{} lost", why.empty() ? "" : ", ", grouped(lost));
  if (!why.empty()) text += " (" + why + ")";
  if (kinds > 0) text += fmt::format("; {} other {} of loss", kinds, kinds == 1 ? "kind" : "kinds");
  if (selection.options.losses)
    text += '.';
  else
    text += "; see --losses";
  append_comment(out, text);
}

}  // namespace

void append_losses(std::string& out, const Selection& selection) {
  const Recording& recording = selection.attribution().recording();
  if (!recording.complete()) {
    append_comment(out, "The recording has no end mark: the recorder was ended while it wrote.");
  }
  for (const std::string& sentence : recording.damage()) append_comment(out, "Damage: " + sentence);
  append_line(out, selection);
  if (!selection.options.losses) return;
  append_list(out, recording, true, "Lost or incomplete:");
  append_list(out, recording, false, "Counted, but not losses:");
}

}  // namespace dynprof
