#include "symbolizer/attribution/driver_kernel_names.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kAgreeOfOneThatDiffers = 20;
constexpr std::string_view kAnonymous = "(anonymous namespace)";

bool same_base(std::string_view a, std::string_view b) {
  const std::string base = kernel_base_name(a);
  return !base.empty() && base == kernel_base_name(b);
}

}  // namespace

std::string kernel_base_name(std::string_view name) {
  std::string outside;  // of all brackets
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (depth == 0 && name.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    const char c = name[i];
    if (c == '(' && depth == 0) break;  // its parameters
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) outside += c;
    if ((c == '>' || c == ')') && depth > 0) --depth;
  }
  const std::size_t before = outside.find_last_of(": ");
  return before == std::string::npos ? outside : outside.substr(before + 1);
}

void DriverKernelNames::compare(std::int32_t pid, std::string_view driver,
                                std::string_view symbol) {
  Counts& counts = counts_[pid];
  ++(driver == symbol || same_base(driver, symbol) ? counts.agree : counts.differ);
}

void DriverKernelNames::compare_line(std::int32_t pid, std::string_view driver,
                                     std::string_view line) {
  counts_[pid].agree += driver == line;
}

bool DriverKernelNames::usable(std::int32_t pid) const {
  const auto at = counts_.find(pid);
  return at != counts_.end() && at->second.agree > 0 &&
         at->second.agree >= kAgreeOfOneThatDiffers * at->second.differ;
}

}  // namespace dynprof
