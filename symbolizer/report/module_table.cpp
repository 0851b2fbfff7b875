// The report's part about nn.Modules: what it cost to compile their operators.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "symbolizer/attribution/compile_modules.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 25;
constexpr std::size_t kMaxParts = 64;  // of a path
constexpr double kLeastShare = 0.01;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// A module with those inside it.
struct Row {
  std::uint64_t total_ns = 0, own_ns = 0;
  std::array<std::uint64_t, kLineUses.size()> ns{};  // of the total, by use
  std::uint64_t of(LineUse use) const { return ns[static_cast<std::size_t>(use) - 1]; }
};

void add(std::map<std::string, Row>& rows, const ModuleTime& module) {
  std::size_t end = 0;
  for (std::size_t parts = 0; parts < kMaxParts && end != std::string::npos; ++parts) {
    end = module.path.find('.', end + (parts > 0 ? 1 : 0));
    Row& row = rows[module.path.substr(0, end)];
    row.total_ns += module.sum_ns();
    if (end == std::string::npos) row.own_ns += module.sum_ns();
    for (std::size_t use = 0; use < row.ns.size(); ++use) row.ns[use] += module.ns[use];
  }
}

}  // namespace

void append_modules(std::string& out, const Selection& selection) {
  const CompileModules& modules = selection.analysis.modules();
  std::map<std::string, Row> rows;
  std::uint64_t sum_ns = 0;
  for (CompileIndex compile : selection.compiles) {
    for (const ModuleTime& module : modules.of(compile)) {
      add(rows, module);
      sum_ns += module.sum_ns();
    }
  }
  if (sum_ns == 0) return;
  // A module right below the one it is in: that is the order of their paths. Small ones are left out, and the
  // smallest of those that are too many.
  std::vector<std::pair<std::string, Row>> shown(rows.begin(), rows.end());
  std::stable_sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) {
    return a.second.total_ns > b.second.total_ns;
  });
  const auto least = static_cast<std::uint64_t>(kLeastShare * static_cast<double>(sum_ns));
  std::size_t count = 0;
  while (count < std::min(shown.size(), kMaxRows) && shown[count].second.total_ns >= least) ++count;
  const std::size_t left_out = shown.size() - count;
  shown.resize(count);
  std::sort(shown.begin(), shown.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  out += "#\n";
  append_comment(out, fmt::format("nn.Modules: {:.2f} s in which compiles were at an operator of "
                                  "one. Total: with the modules inside it; the phases are of it.",
                                  seconds(sum_ns)));
  out += "#\n";
  out += "#  Total s    Own s   dynamo      aot  inductor  Module\n";
  out +=
      fmt::format("# ........  .......  .......  .......  ........  {}\n#\n", std::string(50, '.'));
  for (const auto& [path, row] : shown) {
    out += fmt::format("{:>10.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>10.3f}  {}\n", seconds(row.total_ns),
                       seconds(row.own_ns), seconds(row.of(LineUse::kTracing)),
                       seconds(row.of(LineUse::kRetracing)), seconds(row.of(LineUse::kLowering)),
                       cut(path, 50, true));
  }
  if (left_out > 0)
    append_comment(out, fmt::format("{} more modules, each less", grouped(left_out)));
}

}  // namespace dynprof
