#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 50;
constexpr std::size_t kMaxLabel = 24;

// A share of the phases; what no other column names goes into the last.
struct Column {
  const char* title;
  int width;             // of the title and of "100%", with a space before
  std::uint32_t phases;  // bit per Phase
};
constexpr std::uint32_t bit(Phase phase) { return 1u << static_cast<unsigned>(phase); }
constexpr Column kColumns[] = {
    {"dynamo", 7, bit(Phase::kDynamo)},
    {"aot", 5, bit(Phase::kAotAutograd)},
    {"induct", 7, bit(Phase::kInductor)},
    {"kernel", 7, bit(Phase::kKernelCompile) | bit(Phase::kWait)},
    {"other", 6,
     ~(bit(Phase::kDynamo) | bit(Phase::kAotAutograd) | bit(Phase::kInductor) |
       bit(Phase::kKernelCompile) | bit(Phase::kWait))},
};
constexpr std::size_t kColumnCount = std::size(kColumns);
constexpr std::size_t kSharesWidth = 7 + 5 + 7 + 7 + 6;
constexpr std::size_t kNumberWidth = 7;    // "13.873" and a space
constexpr std::size_t kLeastFunction = 8;  // columns of a function's place

// Nanoseconds by column: of wall where that is known, else of CPU.
struct Shares {
  std::array<std::uint64_t, kColumnCount> columns{};
  std::uint64_t whole = 0;

  void add(Phase phase, std::uint64_t ns) {
    whole += ns;
    for (std::size_t i = 0; i < kColumnCount; ++i) {
      if (kColumns[i].phases & bit(phase)) columns[i] += ns;
    }
  }
  void add(const Shares& other) {
    whole += other.whole;
    for (std::size_t i = 0; i < kColumnCount; ++i) columns[i] += other.columns[i];
  }
};

struct Row {
  CompileIndex compile;
  std::uint64_t cpu_ns = 0;  // of the samples selected
  Shares shares{};
};

std::string function_of(const Selection& selection, CompileIndex index, std::size_t width) {
  CompiledFunction function = selection.attribution().function(index);
  if (function.qualname.empty()) return cell("-", width);
  if (function.unreadable != Unreadable::kNo) return cell(function.qualname, width);
  std::string place = fmt::format(" {}:{}", base_name(function.file), function.line);
  constexpr std::size_t kRoomForBoth = 18;
  if (width < kRoomForBoth) return cell(cut(place.substr(1), width, true), width);
  // The method's own name and the line are the parts to keep.
  std::string place_text = cut(place, width * 2 / 3, true);
  std::string name = cut(function.qualname, width - display_width(place_text), true);
  return cell(name + place_text, width);
}

std::string shares_text(const Shares& shares) {
  std::string text;
  for (std::size_t i = 0; i < kColumnCount; ++i) {
    const double percent =
        100.0 * static_cast<double>(shares.columns[i]) / static_cast<double>(shares.whole);
    text += fmt::format("{:>{}}", shares.columns[i] == 0 ? "-" : fmt::format("{:.0f}%", percent),
                        kColumns[i].width);
  }
  return text;
}

Shares wall_shares(const Attribution& attribution, CompileIndex index) {
  Shares shares;
  if (const ExactCompile* timing = attribution.timing(index)) {
    for (std::size_t i = 0; i < timing->phase_ns.size(); ++i) {
      if (timing->phase_ns[i] > 0) shares.add(static_cast<Phase>(i), timing->phase_ns[i]);
    }
  } else if (const PastCompile* past = attribution.past(index)) {
    for (const PastPhase& phase : past->phases) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::kCount); ++i) {
        if (phase.name != phase_text(static_cast<Phase>(i))) continue;
        shares.add(static_cast<Phase>(i), static_cast<std::uint64_t>(phase.wall_s * 1e9));
      }
    }
  }
  return shares;
}

// One compile per row, and lines below it that say why it was.
class Table {
 public:
  explicit Table(const Selection& selection)
      : selection_(selection),
        attribution_(selection.attribution()),
        tree_(selection.folded.processes()) {
    for (CompileIndex i : selection.compiles) rows_.push_back({i});
    add_samples();
    for (Row& row : rows_) {
      const Compile& compile = attribution_.compiles()[row.compile];
      any_exact_ |= compile.timing != kNoIndex || compile.exact;
      any_waits_ |= waits_of(row.compile).known;
      any_children_ |= tree_.cpu_ns(row.compile) > 0;
      any_breaks_ |= attribution_.graph_breaks(row.compile) != nullptr;
      // A part of the phases was asked for: then of the samples in it.
      bool by_wall =
          selection.options.phases.empty() && (compile.timing != kNoIndex || compile.samples == 0);
      if (by_wall) row.shares = wall_shares(attribution_, row.compile);
      total_.shares.add(row.shares);
    }
    keep_heaviest();
    for (const Row& row : rows_) {
      label_width_ = std::max(label_width_, attribution_.label(row.compile).size());
    }
    // Indent, flags, the numbers, breaks, and the shares.
    const std::size_t numbers = 2 + (any_waits_ ? 1 : 0) + (any_children_ ? 1 : 0);
    const std::size_t room =
        kReportColumns - 2 - 4 - numbers * kNumberWidth - (any_breaks_ ? 7 : 0) - kSharesWidth;
    label_width_ = std::min({label_width_, kMaxLabel, room - kLeastFunction});
    function_width_ = room - label_width_;
  }

  void append(std::string& out) {
    append_titles(out);
    for (const Row& row : rows_) append_row(out, row);
    if (left_out_ > 0) {
      append_comment(out,
                     fmt::format("{} compiles with {} are left out; compiles.json has all.",
                                 grouped(left_out_), any_exact_ ? "less time" : "fewer samples"));
    }
    if (rows_.size() > 1) append_total(out);
    if (flags_[0]) append_comment(out, "<: had begun before the recording did");
    if (flags_[1]) append_comment(out, ">: was still open at the last sample of its thread");
    if (flags_[2]) append_comment(out, "=: over when the recording began; what torch noted of it");
    out += "#\n";
  }

 private:
  void add_samples() {
    for (const StackCount& count : selection_.counts) {
      if (count.compile == kNoCompile) continue;
      auto row = std::lower_bound(rows_.begin(), rows_.end(), count.compile,
                                  [](const Row& a, CompileIndex b) { return a.compile < b; });
      row->cpu_ns += count.ns;
      total_.cpu_ns += count.ns;
      row->shares.add(count.phase, count.ns);
    }
  }

  void keep_heaviest() {
    if (rows_.size() <= kMaxRows) return;
    left_out_ = rows_.size() - kMaxRows;
    std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
      return std::pair(b.shares.whole, a.compile) < std::pair(a.shares.whole, b.compile);
    });
    rows_.resize(kMaxRows);
    std::sort(rows_.begin(), rows_.end(),
              [](const Row& a, const Row& b) { return a.compile < b.compile; });
  }

  void append_titles(std::string& out) const {
    const char* what = any_exact_
                           ? "Wall and shares of it are exact; where a ~ stands, wall is from the "
                             "first to the last sample, and shares are of CPU."
                           : "Wall is from the first to the last sample; shares are of CPU.";
    append_comment(out, fmt::format("Compiles: {}, {:.2f} s on-CPU. {}",
                                    grouped(attribution_.compiles().size()),
                                    static_cast<double>(total_.cpu_ns) * 1e-9, what));
    out += "#\n";
    std::string titles = "# " + cell("Trace id", label_width_) + "    " +
                         cell("Function", function_width_) + " Wall s  CPU s";
    if (any_waits_) titles += " Wait s";
    if (any_children_) titles += " Childr";
    for (const Column& column : kColumns)
      titles += fmt::format("{:>{}}", column.title, column.width);
    if (any_breaks_) titles += fmt::format("{:>7}", "breaks");
    out += titles + '\n';
  }

  std::string wall_text(const Compile& compile) const {
    if (compile.first_ns == 0) return "-";
    std::uint64_t wall_ns = compile.wall_ns(attribution_.recording().meta().period_ns);
    double wall_s = static_cast<double>(wall_ns) * 1e-9;
    if (compile.exact) return seconds_text(wall_s, 3);
    return (any_exact_ ? "~" : "") + seconds_text(wall_s, wall_s < 100 ? 2 : 1);
  }

  // At most six columns up to 11 days: digits behind the point make way.
  static std::string seconds_text(double seconds, int digits) {
    std::string text = fmt::format("{:.{}f}", seconds, digits);
    while (text.size() > 6 && digits > 0) text = fmt::format("{:.{}f}", seconds, --digits);
    return text;
  }

  const CompileWaits& waits_of(CompileIndex compile) const {
    return selection_.folded.counts().recorded_waits().of(compile);
  }
  std::string wait_text(CompileIndex compile) const {
    if (!any_waits_) return {};
    const CompileWaits& waits = waits_of(compile);
    return waits.known
               ? fmt::format("{:>7}", seconds_text(static_cast<double>(waits.wait_ns) * 1e-9, 2))
               : fmt::format("{:>7}", "-");
  }
  // CPU time of child processes.
  std::string children_text(const Row& of) const {
    if (!any_children_) return "";
    std::uint64_t ns = 0;
    if (of.compile != kNoCompile) {
      ns = tree_.cpu_ns(of.compile);
    } else {
      for (const Row& row : rows_) ns += tree_.cpu_ns(row.compile);
    }
    return ns == 0 ? fmt::format("{:>7}", "-")
                   : fmt::format("{:>7}", seconds_text(static_cast<double>(ns) * 1e-9, 2));
  }

  void append_row(std::string& out, const Row& row) {
    const Compile& compile = attribution_.compiles()[row.compile];
    char first = compile.before_attach ? '=' : compile.began_before ? '<' : ' ';
    flags_[0] |= compile.began_before;
    flags_[1] |= compile.open_at_end;
    flags_[2] |= compile.before_attach;
    std::string cpu = "-";
    if (row.cpu_ns != 0) {
      cpu = seconds_text(static_cast<double>(row.cpu_ns) * 1e-9, 2);
    }
    out += "  " + cell(attribution_.label(row.compile), label_width_) + ' ' + first +
           (compile.open_at_end ? '>' : ' ') + ' ' +
           function_of(selection_, row.compile, function_width_) +
           fmt::format("{:>7}{:>7}", wall_text(compile), cpu) + wait_text(row.compile) +
           children_text(row) + shares_text(row.shares);
    if (any_breaks_) {
      const auto* breaks = attribution_.graph_breaks(row.compile);
      out += breaks != nullptr ? fmt::format("{:>7}", breaks->size()) : fmt::format("{:>7}", "-");
    }
    const PastCompile* past = attribution_.past(row.compile);
    bool is_last = attribution_.is_last_attempt(row.compile);
    out += '\n';
    if (past == nullptr || !is_last) return;
    if (past->recompile_reason) append_why(out, "recompiled: " + *past->recompile_reason);
    if (past->failed) append_why(out, "failed: " + *past->failed);
  }

  void append_why(std::string& out, const std::string& why) const {
    std::string indent(2 + label_width_ + 4, ' ');
    out += indent + cut(one_line(why), kReportColumns - indent.size()) + '\n';
  }

  void append_total(std::string& out) const {
    out +=
        "  " + cell("all", label_width_) + "    " + cell("", function_width_) +
        fmt::format("{:>7}{:>7}", "", seconds_text(static_cast<double>(total_.cpu_ns) * 1e-9, 2)) +
        std::string(any_waits_ ? kNumberWidth : 0, ' ') + children_text(total_) +
        shares_text(total_.shares) + '\n';
  }

  const Selection& selection_;
  const Attribution& attribution_;
  const ProcessTree& tree_;
  std::vector<Row> rows_;
  Row total_{kNoCompile};
  std::size_t left_out_ = 0;
  std::size_t label_width_ = 8, function_width_ = 0;
  bool any_exact_ = false, any_breaks_ = false, any_waits_ = false, any_children_ = false;
  bool flags_[3] = {};  // which of them need a line below the table
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
