// The answers, at most twelve lines at the top of the report; and below the table what they left out.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/report/findings.h"
#include "symbolizer/report/rank_differences.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/suggestions.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxLines = 12;  // of the summary, its title among them
constexpr std::size_t kMaxOthers = 3;
constexpr std::size_t kMaxKinds = 4;
constexpr std::size_t kMaxOpen = 2;
constexpr std::size_t kOpenLines = 3;

// How much of each there may be.
struct Limits {
  std::size_t recompiles, breaks, suggestions;
  std::size_t reason_lines, lines;
};
constexpr Limits kSummary{2, 3, 3, 3, 2};
constexpr Limits kDetails{50, 50, 50, 12, 12};

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string counted(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", grouped(count), count == 1 ? one : many);
}

void append_part(std::string& text, const std::string& part, const char* between = ", ") {
  text += (text.empty() ? "" : between) + part;
}

struct Entry {
  const char* title;
  std::string text;
  std::size_t most;  // lines it may have
  int keep = 0;      // those with more keep their lines longer
  int drop = 0;      // where all have one line, those with more are left out first; 0: never
};

class Summary {
 public:
  Summary(const Selection& selection, const Findings& findings, const Limits& limits)
      : analysis_(selection.analysis),
        attribution_(selection.attribution()),
        found_(findings),
        limits_(limits) {}

  // Whether something did not fit.
  bool append(std::string& out) {
    add_all();
    for (const Entry& entry : entries_) append_item(out, entry.title, entry.text, entry.most);
    return cut_;
  }

  std::vector<std::pair<std::string, std::string>> items() {
    add_all();
    std::vector<std::pair<std::string, std::string>> items;
    for (const Entry& entry : entries_) items.emplace_back(entry.title, one_line(entry.text));
    return items;
  }

  void append_details(std::string& out) {
    add_recompiles();
    add_failures();
    add_breaks();
    add_suggestions();
    for (const Entry& entry : entries_) append_item(out, entry.title, entry.text, entry.most);
  }

 private:
  void add(const char* title, std::string text) { add(title, std::move(text), limits_.lines); }
  void add(const char* title, std::string text, std::size_t most, int keep = 0) {
    entries_.push_back({title, std::move(text), most, keep});
  }
  // The entry added last may be left out.
  void may_drop(int drop) { entries_.back().drop = drop; }

  void add_all() {
    add_open();
    add_compiling();
    add_spent();
    add_one_off();
    add_waiting();
    add_gpu();
    add_longest();
    add_ranks();
    add_advice();
    fit();
  }

  void add_advice() {
    add_recompiles();
    add_failures();
    add_breaks();
    add_caches();
    add_triton();
    add_interference();
    add_suggestions();
  }

  static std::size_t lines_of(const Entry& entry, std::size_t most) {
    std::string out;
    append_item(out, entry.title, entry.text, most);
    return static_cast<std::size_t>(std::count(out.begin(), out.end(), '\n'));
  }

  // Long entries give way first, then those that may be left out.
  void fit() {
    for (Entry& entry : entries_) {
      const std::size_t wanted = lines_of(entry, 1000);
      cut_ |= wanted > entry.most;
      entry.most = std::min(wanted, entry.most);
    }
    auto sum = [&] {
      std::size_t lines = 1;  // the title's
      for (const Entry& entry : entries_) lines += entry.most;
      return lines;
    };
    while (sum() > kMaxLines) {
      cut_ = true;
      // Of those with more than a line.
      auto longest = entries_.begin();
      for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        auto key = [](const Entry& of) { return std::tuple(of.most > 1, -of.keep, of.most); };
        if (key(*entry) > key(*longest)) longest = entry;
      }
      if (longest->most > 1) {
        --longest->most;
        continue;
      }
      auto last = entries_.begin();
      for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
        if (entry->drop >= last->drop) last = entry;
      entries_.erase(last);
    }
  }

  // First of all: what the recording was probably made for.
  void add_open() {
    for (const StillOpen& open : found_.open) {
      if (&open - found_.open.data() == kMaxOpen) break;
      add("Still open", still_open_text(analysis_, open), kOpenLines, 3);
    }
    if (found_.open.size() <= kMaxOpen) return;
    cut_ = true;
    add("Still open", counted(found_.open_at_end - kMaxOpen, "more compile", "more compiles"));
    may_drop(8);
  }

  void add_compiling() {
    if (found_.compiles + found_.before == 0) {
      std::string text = "no torch.compile activity was seen";
      if (found_.recorded_ns > 0)
        text += fmt::format(" in the {:.2f} s recorded", seconds(found_.recorded_ns));
      add("Compiling", std::move(text));
      return;
    }
    std::string text;
    if (found_.compiles > 0) {
      text = fmt::format("{:.2f} s", seconds(found_.compiling_ns));
      if (found_.recorded_ns > 0) {
        text += fmt::format(" of the {:.2f} s recorded ({:.0f} %)", seconds(found_.recorded_ns),
                            share_percent(found_.compiling_ns, found_.recorded_ns));
      }
      text += ": " + counted(found_.compiles, "compile", "compiles");
      if (found_.functions > 0) text += " of " + counted(found_.functions, "function", "functions");
      if (found_.processes > 1) text += fmt::format(" in {} processes", grouped(found_.processes));
      if (found_.thread_ns > found_.compiling_ns + found_.compiling_ns / 20)
        text += fmt::format("; {:.2f} s over all threads", seconds(found_.thread_ns));
      if (found_.open_at_start > 0)
        text += fmt::format("; {} had begun before", grouped(found_.open_at_start));
      if (found_.open_at_end > 0)
        text += fmt::format("; {} still open at the end", grouped(found_.open_at_end));
    }
    if (found_.before > 0) {
      append_part(text,
                  fmt::format("{} ended before it began ({:.2f} s)",
                              counted(found_.before, found_.compiles > 0 ? "more" : "compile",
                                      found_.compiles > 0 ? "more" : "compiles"),
                              seconds(found_.before_ns)),
                  "; ");
    }
    add("Compiling", std::move(text));
  }

  void add_spent() {
    const std::uint64_t whole = found_.groups.whole();
    if (whole == 0 || found_.compiles == 0) return;
    std::vector<PhaseGroup> order;
    for (std::size_t i = 0; i < kPhaseGroups; ++i) order.push_back(static_cast<PhaseGroup>(i));
    std::stable_sort(order.begin(), order.end(), [&](PhaseGroup a, PhaseGroup b) {
      return found_.groups.of(a) > found_.groups.of(b);
    });
    std::string text;
    for (PhaseGroup group : order) {
      const double percent = share_percent(found_.groups.of(group), whole);
      if (percent < 0.5) continue;
      std::string words = phase_group_name(group).words;
      if (group == PhaseGroup::kInductor && found_.groups.kernel_in_inductor)
        words += " (for some compiles with the compilers)";
      append_part(text, fmt::format("{} {:.0f} %", words, percent));
    }
    if (found_.groups_are_cpu) text += "; of CPU time, as samples show it";
    add("Spent on", std::move(text));
  }

  // What the next run with the same caches does not pay.
  void add_one_off() {
    if (found_.one_off_ns < 1'000'000 || share_percent(found_.one_off_ns, found_.thread_ns) < 1)
      return;
    std::string parts;
    for (const auto& [what, ns] : found_.one_off) {
      if (share_percent(ns, found_.one_off_ns) < 1) continue;
      append_part(parts, fmt::format("{} {:.2f} s", what, seconds(ns)));
    }
    add("One-off", fmt::format("{:.2f} s ({:.0f} %), cached: {}", seconds(found_.one_off_ns),
                               share_percent(found_.one_off_ns, found_.thread_ns), parts));
    may_drop(2);
  }

  void add_waiting() {
    if (found_.wait_ns < 1'000'000 || found_.thread_ns == 0) return;
    std::string kinds;
    std::size_t shown = 0;
    for (const auto& [what, ns] : found_.waits) {
      if (shown++ == kMaxKinds || share_percent(ns, found_.wait_ns) < 5) break;
      append_part(kinds, fmt::format("{} {:.2f} s", cut(what, 24), seconds(ns)));
    }
    std::string text = fmt::format("{:.2f} s ({:.0f} %): {}", seconds(found_.wait_ns),
                                   share_percent(found_.wait_ns, found_.thread_ns), kinds);
    if (found_.runnable_ns * 10 > found_.scheduled_ns)
      text += fmt::format("; and {:.2f} s ({:.0f} %) no CPU was free", seconds(found_.runnable_ns),
                          share_percent(found_.runnable_ns, found_.scheduled_ns));
    add("Waiting", std::move(text));
  }

  void add_gpu() {
    std::string text = gpu_verdict_text(found_.gpu);
    if (!text.empty()) add("GPU", std::move(text));
  }

  void add_longest() {
    if (found_.longest.empty()) return;
    std::string text, last;
    const std::uint64_t period_ns = attribution_.recording().meta().period_ns;
    // The place of several in a row stands once.
    auto close = [&] {
      if (!last.empty()) text += " (" + cut(last, 50, true) + ")";
    };
    for (CompileIndex i : found_.longest) {
      const Compile& compile = attribution_.compiles()[i];
      std::string place = function_place(attribution_, i);
      if (i != found_.longest.front() && place != last) close();
      append_part(text, fmt::format("{} {:.2f} s", attribution_.label(i),
                                    seconds(compile.wall_ns(period_ns))));
      last = std::move(place);
    }
    close();
    add("Longest", std::move(text));
    may_drop(1);
  }

  void add_ranks() {
    std::string text = rank_differences(attribution_);
    if (!text.empty()) add("Ranks", std::move(text));
  }

  void add_recompiles() {
    std::size_t shown = 0;
    for (const Recompiles& group : found_.recompiles) {
      if (shown++ == limits_.recompiles) break;
      std::string text = cut(group.place, 60, true);
      if (!group.compiles.empty()) {
        text += fmt::format(" {}, {:.2f} s",
                            group.compiles.size() == 1
                                ? "once"
                                : fmt::format("{} times", grouped(group.compiles.size())),
                            seconds(group.cost_ns));
      }
      if (!group.limit.empty())
        text +=
            group.limit_is_error ? "; limit reached, now an error" : "; limit reached, now eager";
      if (!group.reasons.empty())
        text += fmt::format("{}{}", group.reasons.size() > 1 ? "; last: " : "; ",
                            one_line(group.reasons.back()));
      add("Recompiled", std::move(text), limits_.reason_lines, 2);
      if (shown > 1) may_drop(4);
    }
    if (found_.recompiles.size() > limits_.recompiles) {
      cut_ = true;
      add("Recompiled", counted(found_.recompiles.size() - limits_.recompiles, "more function",
                                "more functions"));
      may_drop(7);
    }
  }

  void add_failures() {
    if (found_.failures.empty()) return;
    const Failure& first = found_.failures.front();
    std::string text = attribution_.label(first.compile) + ": " + one_line(first.text);
    if (std::size_t more = found_.failures.size() - 1; more > 0)
      text = fmt::format("{} compiles; {}", grouped(more + 1), text);
    add("Failed", std::move(text));
  }

  void add_breaks() {
    std::uint64_t breaks = 0, intended = 0, lines = 0;
    std::string places;
    for (const BreakPlace& one : found_.breaks) {
      (one.intended ? intended : breaks) += one.count;
      if (one.intended) continue;
      if (++lines > limits_.breaks) continue;
      const std::string place =
          one.file.empty() ? ""
                           : fmt::format("{}:{}: ", cut(base_name(one.file), 30, true), one.line);
      append_part(places,
                  fmt::format("{}{}{}", place, cut(one.reason, limits_.lines > 2 ? 500 : 110),
                              one.count > 1 ? fmt::format(" ({} times)", grouped(one.count)) : ""),
                  "; ");
    }
    if (breaks + intended == 0) return;
    std::string text;
    if (breaks > 0) text = fmt::format("{} at {}", grouped(breaks), places);
    if (lines > limits_.breaks) {
      cut_ = true;
      text += fmt::format("; {} more lines", grouped(lines - limits_.breaks));
    }
    if (intended > 0) {
      append_part(
          text,
          counted(intended, "split that DDPOptimizer intends", "splits that DDPOptimizer intends"),
          "; ");
    }
    add("Graph breaks", std::move(text));
  }

  void add_caches() {
    const PastCaches& caches = found_.caches;
    if (!found_.caches_known) return;
    if (caches.fx_hits + caches.fx_misses + caches.aot_hits + caches.aot_misses == 0) return;
    auto words = [](std::uint64_t hits, std::uint64_t misses) {
      return counted(hits, "hit", "hits") + ", " + counted(misses, "miss", "misses");
    };
    add("Caches",
        fmt::format("FxGraphCache {}; AOTAutogradCache {}", words(caches.fx_hits, caches.fx_misses),
                    words(caches.aot_hits, caches.aot_misses)));
    may_drop(3);
  }

  void add_triton() {
    if (found_.triton_kernels == 0) return;
    add("Triton",
        fmt::format("{} compiled or tuned outside of torch.compile: callers waited {:.2f} s, "
                    "most for {}",
                    counted(found_.triton_kernels, "kernel", "kernels"), seconds(found_.triton_ns),
                    found_.triton_first));
    may_drop(4);
  }

  // One sentence, where others had more than a tenth: of the machine, or else of what was recorded.
  void add_interference() {
    const CpuUse& cpu = found_.cpu;
    if (found_.compiles == 0 || cpu.other_ns * 10 <= cpu.whole_ns()) return;
    std::string names;
    for (std::size_t i = 0; i < std::min(cpu.others.size(), kMaxOthers); ++i) {
      append_part(names, fmt::format("{} {:.2f} s", cut(cpu.others[i].first, 20),
                                     seconds(cpu.others[i].second)));
    }
    std::string text =
        fmt::format("other {}processes used {:.0f} % of the {}", cpu.machine ? "" : "recorded ",
                    share_percent(cpu.other_ns, cpu.whole_ns()),
                    cpu.machine ? "machine's CPU time" : "CPU time");
    if (!names.empty()) text += fmt::format(" ({})", names);
    if (cpu.machine)
      text += fmt::format("; idle {:.0f} %", share_percent(cpu.idle_ns, cpu.whole_ns()));
    add("Interference", std::move(text));
  }

  // The most costly ones. What graph breaks cost is not known: the first advice on them has a place.
  void add_suggestions() {
    std::vector<Suggestion> shown = suggest(found_);
    if (shown.size() > limits_.suggestions) {
      cut_ = true;
      auto breaks =
          std::find_if(shown.begin() + static_cast<std::ptrdiff_t>(limits_.suggestions),
                       shown.end(), [](const Suggestion& one) { return one.cost_ns == 0; });
      if (breaks != shown.end()) std::swap(shown[limits_.suggestions - 1], *breaks);
      shown.resize(limits_.suggestions);
    }
    for (const Suggestion& one : shown) {
      add("Suggestion", fmt::format("{} ({})", one.change, one_line(one.evidence)), limits_.lines,
          1);
      if (&one != &shown.front()) may_drop(&one == &shown[1] ? 5 : 6);
    }
  }

  const Analysis& analysis_;
  const Attribution& attribution_;
  const Findings& found_;
  const Limits& limits_;
  std::vector<Entry> entries_;
  bool cut_ = false;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> summary_items(const Selection& selection,
                                                               const Findings& findings) {
  return Summary(selection, findings, kSummary).items();
}

bool append_summary(std::string& out, const Selection& selection, const Findings& findings) {
  return Summary(selection, findings, kSummary).append(out);
}

void append_details(std::string& out, const Selection& selection, const Findings& findings) {
  append_comment(out, "In full: what recompiled, failed and broke the graph, and what to change");
  Summary(selection, findings, kDetails).append_details(out);
  out += "#\n";
}

}  // namespace dynprof
