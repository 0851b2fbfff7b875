#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 50;
constexpr std::size_t kMaxLabel = 24;

// A share of the phases; what no other column names goes into the last.
struct Column {
  const char* title;
  std::uint32_t phases;  // bit per Phase
};
constexpr std::uint32_t bit(Phase phase) { return 1u << static_cast<unsigned>(phase); }
constexpr Column kColumns[] = {
    {"dynamo", bit(Phase::kDynamo)},
    {"aot", bit(Phase::kAotAutograd)},
    {"induct", bit(Phase::kInductor)},
    {"kernel", bit(Phase::kKernelCompile) | bit(Phase::kWait)},
    {"other", ~(bit(Phase::kDynamo) | bit(Phase::kAotAutograd) | bit(Phase::kInductor) |
                bit(Phase::kKernelCompile) | bit(Phase::kWait))},
};
constexpr std::size_t kColumnCount = std::size(kColumns);
using Shares = std::array<std::uint64_t, kColumnCount>;

struct Row {
  CompileIndex compile;
  std::uint64_t samples = 0;  // of those selected
  Shares shares{};
};

void add(Shares& shares, Phase phase, std::uint64_t samples) {
  for (std::size_t i = 0; i < kColumnCount; ++i) {
    if (kColumns[i].phases & bit(phase)) shares[i] += samples;
  }
}

std::string function_of(const Selection& selection, const Compile& compile, std::size_t width) {
  const Tables& tables = selection.tables();
  if (compile.user_code == 0) return cell("-", width);
  const Code& code = tables.codes[compile.user_code];
  if (code.unreadable != Unreadable::kNo) return cell(unreadable_text(code.unreadable), width);
  std::string place =
      fmt::format(" {}:{}", base_name(tables.strings[code.filename]), code.first_line);
  // The method's own name and the line are the parts to keep.
  std::string place_text = cut(place, width * 2 / 3, true);
  std::string name = cut(tables.strings[code.qualname], width - display_width(place_text), true);
  return cell(name + place_text, width);
}

std::string shares_text(const Shares& shares, std::uint64_t samples) {
  std::string text;
  for (std::uint64_t share : shares) {
    text += samples == 0 || share == 0
                ? fmt::format("{:>7}", "-")
                : fmt::format("{:>6.0f}%",
                              100.0 * static_cast<double>(share) / static_cast<double>(samples));
  }
  return text;
}

}  // namespace

void append_compile_table(std::string& out, const Selection& selection) {
  const Attribution& attribution = selection.attribution();
  if (attribution.compiles().empty()) {
    append_comment(out, "No torch.compile activity was seen.");
    out += "#\n";
    return;
  }
  std::vector<Row> rows;
  for (CompileIndex i : selection.compiles) rows.push_back({i});
  Row total{kNoCompile};
  for (const StackCount& count : selection.counts) {
    if (count.compile == kNoCompile) continue;
    auto row = std::lower_bound(rows.begin(), rows.end(), count.compile,
                                [](const Row& a, CompileIndex b) { return a.compile < b; });
    for (Row* sum : {&*row, &total}) {
      sum->samples += count.samples;
      add(sum->shares, count.phase, count.samples);
    }
  }
  std::size_t left_out = 0;
  if (rows.size() > kMaxRows) {
    left_out = rows.size() - kMaxRows;
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return std::pair(b.samples, a.compile) < std::pair(a.samples, b.compile);
    });
    rows.resize(kMaxRows);
    std::sort(rows.begin(), rows.end(),
              [](const Row& a, const Row& b) { return a.compile < b.compile; });
  }

  std::size_t label_width = 8;
  for (const Row& row : rows) {
    label_width = std::max(label_width, attribution.label(row.compile).size());
  }
  label_width = std::min(label_width, kMaxLabel);
  // Indent, flags, two numbers of eight, and the shares.
  std::size_t function_width = kReportColumns - 2 - label_width - 4 - 2 * 8 - 7 * kColumnCount;

  append_comment(
      out, fmt::format("Compiles: {}, {:.2f} s on-CPU. Wall is from the first to the last sample; "
                       "shares are of CPU.",
                       grouped(attribution.compiles().size()),
                       static_cast<double>(total.samples) * selection.period_s));
  out += "#\n";
  std::string titles = "# " + cell("Trace id", label_width) + "    " +
                       cell("Function", function_width) + "  Wall s   CPU s";
  for (const Column& column : kColumns) titles += fmt::format("{:>7}", column.title);
  out += titles + '\n';
  bool before = false, open = false;
  for (const Row& row : rows) {
    const Compile& compile = attribution.compiles()[row.compile];
    before |= compile.began_before;
    open |= compile.open_at_end;
    std::string wall = "-", cpu = "-";
    if (compile.first_ns != 0) {
      wall = fmt::format("{:.2f}", static_cast<double>(compile.last_ns - compile.first_ns) * 1e-9 +
                                       selection.period_s);
    }
    if (row.samples != 0) {
      cpu = fmt::format("{:.2f}", static_cast<double>(row.samples) * selection.period_s);
    }
    out += "  " + cell(attribution.label(row.compile), label_width) + ' ' +
           (compile.began_before ? '<' : ' ') + (compile.open_at_end ? '>' : ' ') + ' ' +
           function_of(selection, compile, function_width) + fmt::format("{:>8}{:>8}", wall, cpu) +
           shares_text(row.shares, row.samples) + '\n';
  }
  if (left_out > 0) {
    append_comment(
        out, fmt::format("{} compiles with fewer samples are left out; compiles.json has all.",
                         grouped(left_out)));
  }
  if (rows.size() > 1) {
    out +=
        "  " + cell("all", label_width) + "    " + cell("", function_width) +
        fmt::format("{:>8}{:>8.2f}", "", static_cast<double>(total.samples) * selection.period_s) +
        shares_text(total.shares, total.samples) + '\n';
  }
  if (before) append_comment(out, "<: had begun before the recording did");
  if (open) append_comment(out, ">: was still open at the last sample of its thread");
  out += "#\n";
}

}  // namespace dynprof
