#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "symbolizer/base/text.h"
#include "user/doctor/diagnosis_output.h"

namespace dynprof {
namespace {

constexpr std::size_t kStateWidth = 10;  // with its margin

std::string title(const CheckGroup& group, const Diagnosis& diagnosis) {
  if (group.name == "kernel") return fmt::format("Kernel: {}", diagnosis.system);
  if (group.name == "process") return fmt::format("Process {}", diagnosis.pid);
  return "This machine and dynprof-bpf's rights";
}

std::size_t name_width(const Diagnosis& diagnosis) {
  std::size_t width = 0;
  for (const CheckGroup& group : diagnosis.groups) {
    for (const Check& check : group.checks) width = std::max(width, check.name.size());
  }
  return width + 2;
}

std::string last_line(const Diagnosis& diagnosis) {
  std::vector<std::string> missing, degraded, unknown;
  for (const CheckGroup& group : diagnosis.groups) {
    for (const Check& check : group.checks) {
      if (check.state == CheckState::kMissing) missing.push_back(check.name);
      if (check.state == CheckState::kDegraded) degraded.push_back(check.name);
      if (check.state == CheckState::kUnknown) unknown.push_back(check.name);
    }
  }
  std::string text;
  switch (verdict(diagnosis)) {
    case CheckState::kMissing:
      text = fmt::format("A recording would not work: {}", fmt::join(missing, ", "));
      break;
    case CheckState::kDegraded:
      text = fmt::format("A recording would work, with less data: {}", fmt::join(degraded, ", "));
      break;
    default:
      text = "A recording would work fully";
      break;
  }
  text += ".\n";
  if (!unknown.empty()) text += fmt::format("Not known: {}.\n", fmt::join(unknown, ", "));
  return text;
}

}  // namespace

std::string diagnosis_text(const Diagnosis& diagnosis) {
  const std::size_t names = name_width(diagnosis);
  std::string text;
  for (const CheckGroup& group : diagnosis.groups) {
    text += escape_terminal(title(group, diagnosis)) + "\n";
    for (std::size_t i = 0; i < group.checks.size(); i++) {
      const Check& check = group.checks[i];
      text += fmt::format("  {:<{}}{:<{}}{}", state_text(check.state), kStateWidth, check.name,
                          names, escape_terminal(check.finding));
      if (!check.consequence.empty()) text += ": " + escape_terminal(check.consequence);
      text += '\n';
      const bool again = i + 1 < group.checks.size() && group.checks[i + 1].fix == check.fix;
      if (!check.fix.empty() && !again)
        text += fmt::format("{:>{}}hint: {}\n", "", kStateWidth + 2, escape_terminal(check.fix));
    }
    text += '\n';
  }
  return text + last_line(diagnosis);
}

}  // namespace dynprof
