// One compile: its phases as a bar, its attempts, why it was, torch's own phases, its code.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "symbolizer/attribution/compile_lines.h"
#include "symbolizer/attribution/compile_memory.h"
#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/generated.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/base/amounts.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/dynamo_table.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kBar = 50;
constexpr std::size_t kMaxTorchPhases = 25;
constexpr std::size_t kMaxListed = 30;
constexpr std::size_t kMaxUserLines = 12;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string counted(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", grouped(count), count == 1 ? one : many);
}

class Page {
 public:
  Page(std::string& out, const Selection& selection, CompileIndex index)
      : out_(out),
        selection_(selection),
        attribution_(selection.attribution()),
        index_(index),
        compile_(attribution_.compiles()[index]),
        timing_(attribution_.timing(index)),
        past_(attribution_.past(index)),
        period_ns_(attribution_.recording().meta().period_ns) {}

  void append() {
    append_title();
    append_phases();
    append_waited_for(out_, selection_, index_);
    append_attempts();
    append_why();
    append_torch_phases();
    append_dynamo_table(out_, attribution_, selection_.analysis.traced(), index_);
    append_user_lines();
    append_generated();
  }

 private:
  void append_title() {
    CompiledFunction function = attribution_.function(index_);
    std::string of =
        function.qualname.empty() ? "" : fmt::format(" of {}", cut(function.qualname, 60));
    if (function.unreadable == Unreadable::kNo && !function.file.empty()) {
      of += fmt::format(" {}:{}", cut(function.file, 60, true), function.line);
    }
    append_comment(out_, fmt::format("Compile {}: {}{}", attribution_.label(index_),
                                     compile_kind_text(compile_.kind), of));
    std::string text;
    if (compile_.thread != kNoThread) {
      const Thread& thread = selection_.tables().threads[compile_.thread];
      text = fmt::format("Thread {} of process {}", thread.tid, thread.pid);
    } else {
      text = fmt::format("Process {}", compile_.pid);
    }
    std::uint64_t start_ns = attribution_.recording().meta().start_ns;
    if (compile_.first_ns >= start_ns && compile_.first_ns != 0) {
      text +=
          fmt::format("; {} {:.3f} s after the recording", compile_.began_before ? "seen" : "began",
                      seconds(compile_.first_ns - start_ns));
    } else if (compile_.first_ns != 0) {
      text += fmt::format("; began {:.3f} s before the recording",
                          seconds(start_ns - compile_.first_ns));
    }
    if (compile_.first_ns != 0) {
      text += fmt::format("; {:.3f} s wall{}", seconds(compile_.wall_ns(period_ns_)),
                          compile_.exact ? "" : " as far as seen");
    }
    text += fmt::format("; {:.3f} s on-CPU in {}", seconds(compile_.cpu_ns),
                        counted(compile_.samples, "sample", "samples"));
    append_comment(out_, text);
    const CompileWaits& waits = selection_.analysis.counts().recorded_waits().of(index_);
    if (waits.known) {
      append_comment(out_, fmt::format("By the scheduler: {:.3f} s on a CPU, {:.3f} s waiting, "
                                       "{:.3f} s runnable without one.",
                                       seconds(waits.on_cpu_ns), seconds(waits.wait_ns),
                                       seconds(waits.runnable_ns)));
    }
    append_memory();
    if (compile_.started_ns != 0) {
      append_comment(out_, fmt::format("It had begun {:.3f} s before the recording did; its times "
                                       "are those while it was recorded.",
                                       seconds(start_ns - compile_.started_ns)));
    } else if (compile_.began_before) {
      append_comment(out_, "It had begun before the recording did.");
    }
    if (compile_.open_at_end) append_comment(out_, "It was still open when the recording ended.");
    if (compile_.before_attach) {
      append_comment(out_,
                     "It had ended when the recording began: this is torch's own record of it.");
    }
  }

  void append_memory() {
    const CompileMemory memory =
        CompileMemories(attribution_, selection_.analysis.processes()).of(index_);
    std::string text;
    if (memory.readings > 0)
      text = fmt::format(
          "Memory of its process: {} at first, at most {} in {} (none for {:.2f} s at most).",
          format_bytes(memory.first_bytes), format_bytes(memory.peak_bytes),
          counted(memory.readings, "reading", "readings"), seconds(memory.longest_gap_ns));
    if (memory.child_bytes > 0)
      text += fmt::format("{}Its largest child: {}.", text.empty() ? "" : " ",
                          format_bytes(memory.child_bytes));
    if (memory.worker_bytes > 0)
      text += fmt::format("{}The largest compile worker: {}.", text.empty() ? "" : " ",
                          format_bytes(memory.worker_bytes));
    if (!text.empty()) append_comment(out_, text);
  }

  void append_phases() {
    std::array<std::uint64_t, static_cast<std::size_t>(Phase::kCount)> cpu_ns{};
    std::uint64_t cpu_sum = 0;
    for (const StackCount& count : selection_.analysis.counts().of(index_)) {
      cpu_ns[static_cast<std::size_t>(count.phase)] += count.ns;
      cpu_sum += count.ns;
    }
    std::uint64_t whole = cpu_sum;
    if (timing_ != nullptr) {
      whole = timing_->end_ns - timing_->begin_ns;
    }
    if (whole == 0) return;
    out_ += "#\n";
    out_ += fmt::format("# {:<14} {:>9} {:>9}  Share of {}\n", "Phase", "Wall s", "CPU s",
                        timing_ != nullptr ? "wall" : "CPU");
    for (std::size_t i = 0; i < cpu_ns.size(); ++i) {
      std::uint64_t ns = timing_ != nullptr ? timing_->phase_ns[i] : cpu_ns[i];
      if (ns == 0 && cpu_ns[i] == 0) continue;
      append_bar(phase_text(static_cast<Phase>(i)), timing_ != nullptr, ns, cpu_ns[i], whole);
    }
    if (timing_ != nullptr && timing_->nested_ns > 0) {
      append_bar("(nested)", true, timing_->nested_ns, 0, whole);
    }
  }

  void append_bar(const char* name, bool wall_known, std::uint64_t ns, std::uint64_t cpu_ns,
                  std::uint64_t whole) {
    double share = std::min(1.0, static_cast<double>(ns) / static_cast<double>(whole));
    auto length = static_cast<std::size_t>(share * kBar + 0.5);
    std::string wall = wall_known ? fmt::format("{:.3f}", seconds(ns)) : "-";
    std::string cpu = cpu_ns > 0 ? fmt::format("{:.3f}", seconds(cpu_ns)) : "-";
    out_ += fmt::format("  {:<14} {:>9} {:>9}  {:>4.0f}%{}{}\n", name, wall, cpu, 100 * share,
                        length > 0 ? " " : "", std::string(length, '#'));
  }

  void append_attempts() {
    std::vector<CompileIndex> attempts;
    for (CompileIndex i = 0; i < attribution_.compiles().size(); ++i) {
      if (attribution_.compiles()[i].episode == compile_.episode) attempts.push_back(i);
    }
    if (attempts.size() < 2) return;
    out_ += "#\n";
    append_comment(out_, fmt::format("Attempts: {}", attempts.size()));
    for (CompileIndex i : attempts) {
      const Compile& compile = attribution_.compiles()[i];
      std::string text = compile.first_ns == 0
                             ? "not seen"
                             : fmt::format("{:.3f} s wall", seconds(compile.wall_ns(period_ns_)));
      if (!attribution_.is_last_attempt(i)) text += ", then started again";
      if (i == index_) text += "  (this one)";
      append_item(out_, attribution_.label(i), text);
    }
  }

  void append_why() {
    std::string text;
    append_breaks(text);
    if (past_ != nullptr) append_past(text);
    if (text.empty()) return;
    out_ += "#\n";
    append_comment(out_, "Why (torch records this once for all attempts; it is shown at each)");
    out_ += text;
  }

  void append_breaks(std::string& text) {
    const std::vector<PastBreak>* breaks = attribution_.graph_breaks(index_);
    if (breaks == nullptr) return;
    list(text, breaks->size(), "graph break", [&](std::size_t i) {
      const PastBreak& one = (*breaks)[i];
      std::string place = one.file.empty() ? "" : fmt::format("{}:{}: ", one.file, one.line);
      append_item(text, "graph break", place + (one.reason.empty() ? "?" : one.reason));
    });
  }

  void append_past(std::string& text) {
    if (past_->recompile_reason) append_item(text, "recompiled", *past_->recompile_reason);
    list(text, past_->restart_reasons.size(), "restarted",
         [&](std::size_t i) { append_item(text, "restarted", past_->restart_reasons[i]); });
    if (past_->failed) append_item(text, "failed", *past_->failed);
    if (past_->cudagraph_skip_reason)
      append_item(text, "no CUDA graph", *past_->cudagraph_skip_reason);
    if (past_->caches) {
      const PastCaches& caches = *past_->caches;
      append_item(
          text, "caches",
          fmt::format("FxGraph {}, {}; AOTAutograd {}, {}", counted(caches.fx_hits, "hit", "hits"),
                      counted(caches.fx_misses, "miss", "misses"),
                      counted(caches.aot_hits, "hit", "hits"),
                      counted(caches.aot_misses, "miss", "misses")));
    }
    if (past_->backward_from_cache.value_or(false)) {
      append_item(text, "backward",
                  "came with it from AOTAutogradCache, so there is no compile of its own");
    }
  }

  template <class Append>
  static void list(std::string& text, std::size_t count, const char* title, const Append& append) {
    for (std::size_t i = 0; i < std::min(count, kMaxListed); ++i) append(i);
    if (count > kMaxListed) {
      append_item(text, title, fmt::format("... and {} more", grouped(count - kMaxListed)));
    }
  }

  void append_torch_phases() {
    if (timing_ == nullptr || timing_->torch_phases.empty()) return;
    std::vector<const TorchPhaseTime*> times;
    for (const TorchPhaseTime& time : timing_->torch_phases) times.push_back(&time);
    std::stable_sort(times.begin(), times.end(),
                     [](const TorchPhaseTime* a, const TorchPhaseTime* b) {
                       return a->exclusive_ns > b->exclusive_ns;
                     });
    out_ += "#\n";
    append_comment(out_, "torch's own phases, by time without the phases inside");
    out_ += "#     Own s    Wall s   Count  Phase           Name\n";
    std::size_t shown = std::min(times.size(), kMaxTorchPhases);
    for (std::size_t i = 0; i < shown; ++i) {
      std::string_view name = selection_.tables().strings[times[i]->name];
      std::string line =
          fmt::format("  {:>9.3f} {:>9.3f} {:>7}  {:<15} ", seconds(times[i]->exclusive_ns),
                      seconds(times[i]->wall_ns), times[i]->count, phase_text(times[i]->phase));
      out_ += line +
              cut(name.empty() ? "(its name was lost)" : name, kReportColumns - line.size()) + '\n';
    }
    if (times.size() > shown) {
      append_comment(out_, fmt::format("{} more, each less", times.size() - shown));
    }
  }

  // Looks at the target's memory, not samples: waiting for g++ on behalf of a line counts too.
  void append_user_lines() {
    const CompileLines& lines = selection_.analysis.lines();
    const std::vector<LineTime>& rows = lines.of(index_);
    for (const LockWaiter& waiter : lines.waiters(index_)) {
      append_comment(out_,
                     fmt::format("Thread {} waited some {:.1f} s for the compile lock that it held",
                                 waiter.tid, seconds(waiter.ns)));
    }
    if (rows.empty()) return;
    out_ += "#\n";
    append_comment(out_,
                   "Lines of user code it worked on, by reads of its memory, 2 to 20 a second");
    append_comment(
        out_,
        "Tracing: Dynamo. Graph: the backend has a graph that ends there. Again: AOTAutograd "
        "traces the graph. Lower: Inductor.");
    out_ += fmt::format("# {:>9} {:>8} {:>8} {:>8}  Line\n", "Tracing s", "Graph s", "Again s",
                        "Lower s");
    std::size_t shown = std::min(rows.size(), kMaxUserLines);
    for (std::size_t i = 0; i < shown; ++i) {
      const LineTime& row = rows[i];
      auto cell = [&](LineUse use) {
        std::uint64_t ns = row.of(use);
        return ns == 0 ? std::string("-") : fmt::format("{:.2f}", seconds(ns));
      };
      std::string text = fmt::format("  {:>9} {:>8} {:>8} {:>8}  ", cell(LineUse::kTracing),
                                     cell(LineUse::kGraphEnd), cell(LineUse::kRetracing),
                                     cell(LineUse::kLowering));
      std::string function = cut(row.function, 30);
      std::size_t room = kReportColumns - text.size() - function.size() - 1;
      out_ +=
          text + cut(fmt::format("{}:{}", row.file, row.line), room, true) + ' ' + function + '\n';
    }
    if (rows.size() > shown)
      append_comment(out_, fmt::format("{} more, each less", grouped(rows.size() - shown)));
  }

  void append_generated() {
    const Generated& generated = selection_.analysis.generated();
    const std::vector<std::uint32_t>& files = generated.of(index_);
    if (files.empty()) return;
    out_ += "#\n";
    append_comment(out_, "Generated code, in the directory of the recording");
    for (std::size_t i = 0; i < std::min(files.size(), kMaxListed); ++i) {
      const GeneratedCopy& file = generated.files()[files[i]];
      append_item(
          out_, file.kind,
          fmt::format("{}{}{}", file.path(), file.direction.empty() ? "" : "  " + file.direction,
                      file.truncated ? " (its beginning)" : ""));
    }
    if (files.size() > kMaxListed) {
      append_comment(out_, fmt::format("{} more", grouped(files.size() - kMaxListed)));
    }
  }

  std::string& out_;
  const Selection& selection_;
  const Attribution& attribution_;
  CompileIndex index_;
  const Compile& compile_;
  const ExactCompile* timing_;
  const PastCompile* past_;
  std::uint64_t period_ns_;
};

}  // namespace

void append_compile_page(std::string& out, const Selection& selection, CompileIndex compile) {
  Page(out, selection, compile).append();
}

}  // namespace dynprof
