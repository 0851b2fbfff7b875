#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include "symbolizer/attribution/spans.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/cpu_use.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

std::string plural(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", grouped(count), count == 1 ? one : many);
}

std::string utc(std::int64_t realtime_ns) {
  std::time_t seconds = static_cast<std::time_t>(realtime_ns / 1'000'000'000);
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "?";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// How well the sources of attribution did; nothing of those the recording has not.
void append_sources(std::string& out, const Attribution& attribution) {
  const Agreement& agreement = attribution.agreement();
  if (agreement.both > 0) {
    append_comment(
        out, fmt::format("torch's thread-locals and its frames both named the compile in "
                         "{}: they differ in {}",
                         plural(agreement.both, "sample", "samples"), grouped(agreement.differ)));
  }
  const Spans& spans = attribution.spans();
  if (spans.empty()) return;
  std::uint64_t exact = 0;
  for (const Compile& compile : attribution.compiles()) {
    if (compile.timing != kNoIndex && compile.exact) ++exact;
  }
  std::string text =
      fmt::format("Exact times: {}, of {}", plural(spans.edge_count(), "event", "events"),
                  plural(exact, "compile", "compiles"));
  const EdgeLosses& losses = spans.losses();
  if (losses.begins + losses.ends > 0) {
    text += fmt::format("; {} begins and {} ends are missing", grouped(losses.begins),
                        grouped(losses.ends));
  }
  append_comment(out, text);
}

// "45 %" of the machine's CPU time each: nothing where the recording has no account of the machine.
void append_cpu_use(std::string& out, const Selection& selection) {
  const CpuUse use = cpu_use(selection);
  if (!use.machine) return;
  const double whole = static_cast<double>(std::max<std::uint64_t>(use.whole_ns(), 1));
  auto part = [&](std::uint64_t ns) {
    return fmt::format("{:.1f} %", 100 * static_cast<double>(ns) / whole);
  };
  std::string others = part(use.other_ns);
  constexpr std::size_t kMostNames = 3;
  for (std::size_t i = 0; i < std::min(use.others.size(), kMostNames); ++i)
    others += fmt::format("{}{} {:.2f} s{}", i == 0 ? " (" : ", ", cut(use.others[i].first, 16),
                          static_cast<double>(use.others[i].second) * 1e-9,
                          i + 1 == std::min(use.others.size(), kMostNames) ? ")" : "");
  append_comment(
      out, fmt::format("CPU time of the machine ({}): target {}, started for compiles "
                       "{}, dynprof-bpf {}, others {}, idle {}",
                       plural(use.cpus, "CPU", "CPUs"), part(use.target_ns), part(use.helper_ns),
                       part(use.own_ns), others, part(use.idle_ns)));
}

std::string selection_text(const Selection& selection) {
  std::string text;
  if (!selection.options.compiles.empty()) {
    text += "compiles";
    for (CompileIndex i : selection.compiles) text += " [" + selection.attribution().label(i) + "]";
  }
  if (!selection.options.phases.empty()) {
    text += text.empty() ? "phases" : ", phases";
    for (Phase phase : selection.options.phases) text += std::string(" ") + phase_text(phase);
  }
  return text;
}

}  // namespace

void append_title(std::string& out, const Selection& selection) {
  const Recording& recording = selection.attribution().recording();
  const Meta& meta = recording.meta();
  const std::string version = fmt::format("# dynprof-bpf {}: ", cut(meta.version, 24));
  const std::string pid = meta.target_pid > 0 ? fmt::format(" (pid {})", meta.target_pid) : "";
  const std::size_t room = kReportColumns - display_width(version) - pid.size();
  out +=
      version + (meta.command.empty() ? "no command known" : cut(meta.command, room)) + pid + '\n';
  if (std::string only = selection_text(selection); !only.empty()) {
    append_comment(
        out, fmt::format("Only {}: {}", only, plural(selection.samples, "sample", "samples")));
  }
}

void append_about(std::string& out, const Selection& selection) {
  const Attribution& attribution = selection.attribution();
  const Recording& recording = attribution.recording();
  const Meta& meta = recording.meta();
  const Tables& tables = recording.tables();
  append_comment(
      out, fmt::format("Recorded: Python {}, torch {}; {}, Linux {}; {}",
                       meta.python.empty() ? "none" : meta.python,
                       meta.torch.empty() ? "none" : meta.torch, cut(meta.host, 30),
                       cut(meta.kernel, 30),
                       utc(static_cast<std::int64_t>(meta.start_ns) + meta.realtime_offset_ns)));
  std::set<std::int32_t> processes;
  std::set<std::pair<std::int32_t, std::int32_t>> threads;
  for (const Thread& thread : tables.threads) {
    processes.insert(thread.pid);
    threads.emplace(thread.pid, thread.tid);
  }
  const std::vector<bool> helpers = helper_threads(selection.analysis);
  std::uint64_t cpu_ns = 0, in_helpers = 0;
  for (const StackCount& count : selection.analysis.counts().all()) {
    cpu_ns += count.ns;
    if (count.compile == kNoCompile && count.phase == Phase::kRuntime && helpers[count.thread])
      in_helpers += count.samples;
  }
  std::uint64_t end_ns = std::max(recording.trailer().end_ns, meta.start_ns);
  append_comment(
      out, fmt::format("Samples: {} of '{}' at {} Hz = {:.2f} s on-CPU in {:.2f} s; {}, {}; {}",
                       grouped(recording.sample_count()), cut(meta.event, 20), meta.frequency_hz,
                       static_cast<double>(cpu_ns) * 1e-9,
                       static_cast<double>(end_ns - meta.start_ns) * 1e-9,
                       plural(threads.size(), "thread", "threads"),
                       plural(processes.size(), "process", "processes"),
                       recording.trailer().reason.empty() ? "no end seen"
                                                          : cut(recording.trailer().reason, 40)));
  if (meta.mode == kPassiveMode)
    append_comment(
        out,
        "Passive: nothing in the target was changed. Times of compiles and phases are those of "
        "samples; runs of compiled regions, traced functions and GPU work were not recorded");
  std::uint64_t inside = attribution.attributed() + attribution.unattributed();
  std::string split =
      fmt::format("In compiles: {} samples, {} with a trace id ({} unattributed)", grouped(inside),
                  percent(attribution.attributed(), inside), grouped(attribution.unattributed()));
  if (attribution.detached() > 0) {
    split += fmt::format("; {} of compile work on threads without an id",
                         grouped(attribution.detached()));
  }
  if (in_helpers > 0)
    split += fmt::format("; {} of processes started for compiles", grouped(in_helpers));
  append_comment(
      out, split + fmt::format("; {} of run time", grouped(attribution.runtime() - in_helpers)));
  append_sources(out, attribution);
  append_cpu_use(out, selection);
}

}  // namespace dynprof
