// One compile per row, and lines below it that say why it was.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/findings.h"
#include "symbolizer/report/fold_ranks.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 50;
constexpr std::size_t kMaxWhyLines = 6;
constexpr std::size_t kMaxBreaks = 3;
constexpr std::size_t kMaxRanks = 16;       // columns of "0-3,6"
constexpr std::size_t kNumber = 7;          // " 13.873"
constexpr std::size_t kFlags = 4;           // between trace id and function
constexpr std::size_t kLeastFunction = 10;  // columns of a function's place
constexpr std::size_t kRoomForName = 24;    // ... and of its name before it

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

struct Row {
  CompileIndex compile = kNoCompile;
  std::uint64_t cpu_ns = 0;  // of the samples selected
  GroupTimes shares{};       // of wall where that is known, else of CPU
};

// At most six columns up to 11 days: digits behind the point make way.
std::string seconds_text(double value, int digits) {
  std::string text = fmt::format("{:.{}f}", value, digits);
  while (text.size() + 1 >= kNumber && digits > 0) text = fmt::format("{:.{}f}", value, --digits);
  return text;
}

std::string number(std::uint64_t ns, int digits) {
  return fmt::format("{:>{}}", seconds_text(seconds(ns), digits), kNumber);
}
std::string no_number() { return fmt::format("{:>{}}", "-", kNumber); }

class Table {
 public:
  explicit Table(const Selection& selection)
      : selection_(selection),
        attribution_(selection.attribution()),
        tree_(selection.analysis.processes()) {
    for (CompileIndex i : selection.compiles) rows_.push_back({.compile = i});
    add_samples();
    std::set<std::int32_t> pids;
    for (Row& row : rows_) {
      const Compile& compile = attribution_.compiles()[row.compile];
      any_exact_ |= compile.timing != kNoIndex || compile.exact;
      any_waits_ |= waits_of(row.compile).known;
      any_children_ |= tree_.cpu_ns(row.compile) > 0;
      pids.insert(compile.pid);
      // A part of the phases was asked for: then of the samples in it.
      bool by_wall =
          selection.options.phases.empty() && (compile.timing != kNoIndex || compile.samples == 0);
      if (by_wall) row.shares = group_times(attribution_, row.compile);
      total_.shares.add(row.shares);
      total_wall_ns_ += own_wall_ns(row.compile);
      total_wait_ns_ += waits_of(row.compile).known ? waits_of(row.compile).wait_ns : 0;
      total_runnable_ns_ += waits_of(row.compile).known ? waits_of(row.compile).runnable_ns : 0;
      total_children_ns_ += tree_.cpu_ns(row.compile);
    }
    any_pids_ = pids.size() > 1;
    for (std::size_t i = 0; i < kPhaseGroups; ++i) {
      for (const Row& row : rows_)
        shown_[i] |= row.shares.ns[i] * 50 >= row.shares.whole() && row.shares.ns[i] > 0;
    }
    for (std::size_t i = 0; i <= static_cast<std::size_t>(PhaseGroup::kKernel); ++i)
      shown_[i] = true;
    fold();
    keep_heaviest();
    lay_out();
  }

  void append(std::string& out) {
    append_titles(out);
    for (const Row& row : rows_) append_row(out, row);
    if (left_out_ > 0) {
      append_comment(out,
                     fmt::format("{} compiles with {} are left out; compiles.json has all.",
                                 grouped(left_out_), any_exact_ ? "less time" : "fewer samples"));
    }
    if (selection_.compiles.size() > 1) append_total(out);
    if (flags_[0])
      append_comment(
          out,
          "<: began before the recording; its wall time counts from the begin of the recording");
    if (flags_[1]) append_comment(out, ">: was still open at the last sample of its thread");
    if (flags_[2])
      append_comment(out, "=: ended before the recording began; from torch's own records");
    if (flags_[3]) {
      append_comment(
          out, "+: with the compilers and the caches, which torch's own records do not separate");
    }
    out += "#\n";
  }

 private:
  void add_samples() {
    for (const StackCount& count : selection_.counts) {
      if (count.compile == kNoCompile) continue;
      auto row = std::lower_bound(rows_.begin(), rows_.end(), count.compile,
                                  [](const Row& a, CompileIndex b) { return a.compile < b; });
      if (row == rows_.end() || row->compile != count.compile) continue;
      row->cpu_ns += count.ns;
      total_.cpu_ns += count.ns;
      row->shares.add(count.phase, count.ns);
    }
  }

  // Where compiles were asked for, each has its row.
  void fold() {
    if (!any_pids_ || attribution_.ranks().empty() || !selection_.options.compiles.empty()) return;
    std::map<CompileIndex, Row> by_compile;
    for (const Row& row : rows_) by_compile.emplace(row.compile, row);
    rows_.clear();
    for (const FoldedCompile& folded : fold_ranks(attribution_, selection_.compiles)) {
      rows_.push_back(by_compile.at(folded.compile));
      if (folded.ranks.size() < 2) continue;
      ranks_of_[folded.compile] = cut(rank_ranges(folded.ranks), kMaxRanks);
    }
  }

  void keep_heaviest() {
    if (rows_.size() <= kMaxRows) return;
    left_out_ = rows_.size() - kMaxRows;
    std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
      return std::pair(b.shares.whole(), a.compile) < std::pair(a.shares.whole(), b.compile);
    });
    rows_.resize(kMaxRows);
    std::sort(rows_.begin(), rows_.end(),
              [](const Row& a, const Row& b) { return a.compile < b.compile; });
  }

  // Trace ids are whole; what there is no room for is, in this order, the time runnable without a
  // CPU, the CPU time of children, and the function, which then has a line of its own.
  void lay_out() {
    std::size_t used = 2 + kFlags + 2 * kNumber;
    for (std::size_t i = 0; i < kPhaseGroups; ++i) used += shown_[i] ? width_of(i) : 0;
    for (const Row& row : rows_) {
      label_width_ = std::max(label_width_, display_width(label_of(row.compile)));
      pid_width_ = std::max(pid_width_, process_of(row.compile).size());
    }
    used += label_width_ + (any_waits_ ? kNumber : 0) + (any_pids_ ? pid_width_ + 1 : 0);
    any_runnable_ =
        any_waits_ && used + kNumber * (any_children_ ? 2 : 1) + kLeastFunction <= kReportColumns;
    used += any_runnable_ ? kNumber : 0;
    any_children_ &= used + kNumber + kLeastFunction <= kReportColumns;
    used += any_children_ ? kNumber : 0;
    if (used + kLeastFunction <= kReportColumns) function_width_ = kReportColumns - used;
  }

  std::string label_of(CompileIndex compile) const {
    std::string label =
        any_pids_ ? attribution_.label_in_process(compile) : attribution_.label(compile);
    return escape_terminal(label);
  }
  std::string process_of(CompileIndex compile) const {
    if (const auto several = ranks_of_.find(compile); several != ranks_of_.end())
      return several->second;
    const std::int32_t pid = attribution_.compiles()[compile].pid;
    const auto rank = attribution_.ranks().find(pid);
    return rank == attribution_.ranks().end() ? std::to_string(pid) : rank->second;
  }

  static std::size_t width_of(std::size_t group) {
    constexpr std::size_t kLeast = 5;  // " 100%"
    const std::string_view title = phase_group_name(static_cast<PhaseGroup>(group)).column;
    return std::max(title.size() + 1, kLeast);
  }

  void append_titles(std::string& out) const {
    const std::size_t all = attribution_.compiles().size(), chosen = selection_.compiles.size();
    std::string text = fmt::format(
        "Compiles: {}, {:.2f} s wall, {:.2f} s on-CPU. ",
        chosen == all ? grouped(all) : fmt::format("{} of {}", grouped(chosen), grouped(all)),
        seconds(total_wall_ns_), seconds(total_.cpu_ns));
    text += any_exact_ ? "Wall and its shares are exact; with a ~, wall is from the first to the "
                         "last sample, and shares are of CPU."
                       : "Wall is from the first to the last sample; shares are of CPU.";
    if (any_runnable_) {
      text += " Wall is CPU, Wait and Ready (it could have run, and no CPU was free).";
    } else if (any_waits_) {
      text += " Wall is CPU, Wait, and what it waited for a CPU.";
    }
    append_comment(out, text);
    if (any_children_)
      append_comment(out, "Child: CPU time of the processes it started, such as compilers.");
    if (!ranks_of_.empty())
      append_comment(out,
                     "Several ranks in a row compiled the same; its times are of the slowest.");
    append_comment(out, "kernel: the C++ and Triton compilers, and waiting for them.");
    out += "#\n";
    std::string titles =
        "# " +
        (any_pids_
             ? fmt::format("{:>{}} ", attribution_.ranks().empty() ? "Pid" : "Rank", pid_width_)
             : "") +
        cell("Trace id", label_width_) + std::string(kFlags, ' ') +
        cell(function_width_ > 0 ? "Function" : "", function_width_);
    auto title = [&](const char* name) { titles += fmt::format("{:>{}}", name, kNumber); };
    title("Wall s");
    title("CPU s");
    if (any_waits_) title("Wait s");
    if (any_runnable_) title("Ready");
    if (any_children_) title("Child");
    for (std::size_t i = 0; i < kPhaseGroups; ++i) {
      if (shown_[i])
        titles +=
            fmt::format("{:>{}}", phase_group_name(static_cast<PhaseGroup>(i)).column, width_of(i));
    }
    out += titles + '\n';
  }

  // Without the compiles that were nested in it.
  std::uint64_t own_wall_ns(CompileIndex index) const {
    const Compile& compile = attribution_.compiles()[index];
    const std::uint64_t wall = compile.wall_ns(attribution_.recording().meta().period_ns);
    const ExactCompile* timing = attribution_.timing(index);
    return wall - std::min(wall, timing == nullptr ? 0 : timing->nested_ns);
  }

  std::string wall_text(const Compile& compile) const {
    if (compile.first_ns == 0) return no_number();
    std::uint64_t wall_ns = compile.wall_ns(attribution_.recording().meta().period_ns);
    if (compile.exact) return number(wall_ns, 3);
    return fmt::format(
        "{:>{}}",
        (any_exact_ ? "~" : "") + seconds_text(seconds(wall_ns), seconds(wall_ns) < 100 ? 2 : 1),
        kNumber);
  }

  const CompileWaits& waits_of(CompileIndex compile) const {
    return selection_.analysis.counts().recorded_waits().of(compile);
  }

  std::string function_text(CompileIndex index) const {
    CompiledFunction function = attribution_.function(index);
    if (function.qualname.empty()) return cell("-", function_width_);
    if (function.unreadable != Unreadable::kNo) return cell(function.qualname, function_width_);
    std::string place = fmt::format(" {}:{}", base_name(function.file), function.line);
    if (function_width_ < kRoomForName)
      return cell(cut(place.substr(1), function_width_ - 1, true), function_width_);
    // The method's own name and the line are the parts to keep.
    std::string place_text = cut(place, function_width_ * 2 / 3, true);
    std::string name = cut(function.qualname, function_width_ - display_width(place_text), true);
    return cell(name + place_text, function_width_);
  }

  std::string shares_text(const GroupTimes& shares) {
    std::string text;
    const std::uint64_t whole = shares.whole();
    for (std::size_t i = 0; i < kPhaseGroups; ++i) {
      if (!shown_[i]) continue;
      const double percent =
          whole == 0 ? 0 : 100.0 * static_cast<double>(shares.ns[i]) / static_cast<double>(whole);
      std::string share = shares.ns[i] == 0 ? "-" : fmt::format("{:.0f}%", percent);
      if (static_cast<PhaseGroup>(i) == PhaseGroup::kInductor && shares.kernel_in_inductor) {
        share += '+';
        flags_[3] = true;
      }
      text += fmt::format("{:>{}}", share, width_of(i));
    }
    return text;
  }

  void append_row(std::string& out, const Row& row) {
    const Compile& compile = attribution_.compiles()[row.compile];
    char first = compile.before_attach ? '=' : compile.began_before ? '<' : ' ';
    flags_[0] |= compile.began_before;
    flags_[1] |= compile.open_at_end;
    flags_[2] |= compile.before_attach;
    std::string line = "  ";
    if (any_pids_) line += fmt::format("{:>{}} ", process_of(row.compile), pid_width_);
    line += cell(label_of(row.compile), label_width_) + ' ' + first +
            (compile.open_at_end ? '>' : ' ') + ' ';
    if (function_width_ > 0) line += function_text(row.compile);
    line += wall_text(compile) + (row.cpu_ns == 0 ? no_number() : number(row.cpu_ns, 2));
    const CompileWaits& waits = waits_of(row.compile);
    if (any_waits_) line += waits.known ? number(waits.wait_ns, 2) : no_number();
    if (any_runnable_) line += waits.known ? number(waits.runnable_ns, 2) : no_number();
    if (any_children_) {
      const std::uint64_t ns = tree_.cpu_ns(row.compile);
      line += ns == 0 ? no_number() : number(ns, 2);
    }
    out += line + shares_text(row.shares) + '\n';
    if (function_width_ == 0)
      append_why(out, "function", function_place(attribution_, row.compile));
    append_reasons(out, row.compile);
  }

  // What torch noted it noted once for all attempts: it stands at the last.
  void append_reasons(std::string& out, CompileIndex index) const {
    const PastCompile* past = attribution_.past(index);
    if (!attribution_.is_last_attempt(index)) return;
    if (past != nullptr && past->recompile_reason)
      append_why(out, "recompiled", *past->recompile_reason);
    if (past != nullptr && past->failed) append_why(out, "failed", *past->failed);
    if (past != nullptr && past->cudagraph_skip_reason)
      append_why(out, "no CUDA graph", *past->cudagraph_skip_reason);
    const std::vector<PastBreak>* breaks = attribution_.graph_breaks(index);
    if (breaks == nullptr) return;
    // A line may break the graph many times.
    std::vector<std::pair<std::string, std::size_t>> places;
    std::size_t more = 0;
    for (const PastBreak& one : *breaks) {
      std::string text =
          one.file.empty() ? "" : fmt::format("{}:{}: ", base_name(one.file), one.line);
      text += break_reason(one.reason);
      auto known = std::find_if(places.begin(), places.end(),
                                [&](const auto& place) { return place.first == text; });
      if (known != places.end()) {
        ++known->second;
      } else if (places.size() < kMaxBreaks) {
        places.emplace_back(std::move(text), 1);
      } else {
        ++more;
      }
    }
    for (const auto& [text, count] : places)
      append_why(out, "graph break",
                 count == 1 ? text : fmt::format("{} ({} times)", text, grouped(count)));
    if (more > 0) append_why(out, "graph break", fmt::format("... and {} more", grouped(more)));
  }

  static void append_why(std::string& out, std::string_view word, std::string_view text) {
    append_wrapped(out, fmt::format("      {}: ", word), "        ", text, kMaxWhyLines);
  }

  void append_total(std::string& out) {
    std::string line = "  " + std::string(any_pids_ ? pid_width_ + 1 : 0, ' ') +
                       cell("all", label_width_) + std::string(kFlags, ' ') +
                       std::string(function_width_, ' ') + number(total_wall_ns_, 3) +
                       number(total_.cpu_ns, 2);
    if (any_waits_) line += number(total_wait_ns_, 2);
    if (any_runnable_) line += number(total_runnable_ns_, 2);
    if (any_children_) line += number(total_children_ns_, 2);
    out += line + shares_text(total_.shares) + '\n';
  }

  const Selection& selection_;
  const Attribution& attribution_;
  const ProcessTree& tree_;
  std::vector<Row> rows_;
  std::map<CompileIndex, std::string> ranks_of_;  // of rows that stand for several ranks
  Row total_{};
  std::uint64_t total_wall_ns_ = 0, total_wait_ns_ = 0, total_runnable_ns_ = 0,
                total_children_ns_ = 0;
  std::size_t left_out_ = 0;
  std::size_t pid_width_ = 4, label_width_ = 8, function_width_ = 0;
  std::array<bool, kPhaseGroups> shown_{};
  bool any_exact_ = false, any_waits_ = false, any_runnable_ = false, any_children_ = false,
       any_pids_ = false;
  bool flags_[4] = {};  // which of them need a line below the table
};

}  // namespace

void append_compile_table(std::string& out, const Selection& selection) {
  if (selection.attribution().compiles().empty()) {
    append_comment(out, "No torch.compile activity was seen.");
    out += "#\n";
    return;
  }
  Table(selection).append(out);
}

}  // namespace dynprof
