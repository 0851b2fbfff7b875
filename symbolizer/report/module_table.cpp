// The report's part about nn.Modules: what it cost to compile their operators.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 25;
constexpr std::size_t kMaxParts = 64;  // of a path
constexpr double kLeastShare = 0.01;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

void add(std::map<std::string, ModuleRow>& rows, const ModuleTime& module) {
  std::size_t end = 0;
  for (std::size_t parts = 0; parts < kMaxParts && end != std::string::npos; ++parts) {
    end = module.path.find('.', end + (parts > 0 ? 1 : 0));
    ModuleRow& row = rows[module.path.substr(0, end)];
    row.total_ns += module.sum_ns();
    if (end == std::string::npos) row.own_ns += module.sum_ns();
    for (std::size_t use = 0; use < row.ns.size(); ++use) row.ns[use] += module.ns[use];
  }
}

// By the parts of the paths; those that are numbers by their value.
bool is_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view left = a.substr(0, a.find('.')), right = b.substr(0, b.find('.'));
    a.remove_prefix(std::min(a.size(), left.size() + 1));
    b.remove_prefix(std::min(b.size(), right.size() + 1));
    if (left == right) continue;
    std::uint64_t of_left = 0, of_right = 0;
    const auto number = [](std::string_view part, std::uint64_t& value) {
      const auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), value);
      return problem == std::errc() && end == part.data() + part.size();
    };
    const bool left_is = number(left, of_left), right_is = number(right, of_right);
    if (left_is != right_is) return left_is;
    if (left_is && of_left != of_right) return of_left < of_right;
    return left < right;
  }
  return a.empty() && !b.empty();
}

}  // namespace

ModuleRows module_rows(const Selection& selection, std::size_t most) {
  ModuleRows found;
  std::map<std::string, ModuleRow> by_path;
  for (CompileIndex compile : selection.compiles) {
    for (const ModuleTime& module : selection.analysis.modules().of(compile)) {
      add(by_path, module);
      found.sum_ns += module.sum_ns();
    }
  }
  for (auto& [path, row] : by_path) {
    row.path = path;
    found.rows.push_back(std::move(row));
  }
  std::stable_sort(found.rows.begin(), found.rows.end(),
                   [](const ModuleRow& a, const ModuleRow& b) { return a.total_ns > b.total_ns; });
  const auto least = static_cast<std::uint64_t>(kLeastShare * static_cast<double>(found.sum_ns));
  std::size_t count = 0;
  while (count < std::min(found.rows.size(), most) && found.rows[count].total_ns >= least) ++count;
  found.left_out = found.rows.size() - count;
  found.rows.resize(count);
  std::stable_sort(
      found.rows.begin(), found.rows.end(),
      [](const ModuleRow& a, const ModuleRow& b) { return is_before(a.path, b.path); });
  return found;
}

void append_modules(std::string& out, const Selection& selection) {
  const ModuleRows modules = module_rows(selection, kMaxRows);
  if (modules.sum_ns == 0) return;
  out += "#\n";
  append_comment(out, fmt::format("nn.Modules: {:.2f} s in which compiles were at an operator of "
                                  "one. Total: with the modules inside it; the phases are of it.",
                                  seconds(modules.sum_ns)));
  out += "#\n";
  out += "#  Total s    Own s   dynamo      aot  inductor  Module\n";
  out +=
      fmt::format("# ........  .......  .......  .......  ........  {}\n#\n", std::string(50, '.'));
  for (const ModuleRow& row : modules.rows) {
    out += fmt::format("{:>10.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>10.3f}  {}\n", seconds(row.total_ns),
                       seconds(row.own_ns), seconds(row.of(LineUse::kTracing)),
                       seconds(row.of(LineUse::kRetracing)), seconds(row.of(LineUse::kLowering)),
                       cut(row.path, 50, true));
  }
  if (modules.left_out > 0)
    append_comment(out, fmt::format("{} more modules, each less", grouped(modules.left_out)));
}

}  // namespace dynprof
