#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "user/cli/options.h"
#include "user/cli/usage_error.h"

namespace dynprof {
namespace {

struct Unit {
  const char* suffix;
  double factor;
};

template <std::size_t N>
Result<std::uint64_t> parse_with_units(const std::string& text, const Unit (&units)[N],
                                       const std::string& what, const std::string& hint) {
  char* end = nullptr;
  errno = 0;
  double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || errno || !std::isfinite(number) || number < 0)
    return usage_error(fmt::format("'{}' is not a {}", text, what), hint);
  std::string suffix = end;
  for (const Unit& unit : units) {
    if (suffix != unit.suffix) continue;
    double value = number * unit.factor;
    if (value >= 9e18) return usage_error(fmt::format("{} '{}' is too large", what, text), hint);
    return static_cast<std::uint64_t>(value);
  }
  return usage_error(fmt::format("'{}' is not a {}: unknown unit '{}'", text, what, suffix), hint);
}

}  // namespace

Result<std::uint64_t> parse_duration(const std::string& text) {
  static constexpr Unit kUnits[] = {{"", 1e9},   {"s", 1e9},    {"ms", 1e6},  {"us", 1e3},
                                    {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}};
  return parse_with_units(text, kUnits, "duration", "for example -d 30s, -d 500ms or -d 2m");
}

Result<TraceWindow> parse_window(const std::string& from, const std::string& to) {
  TraceWindow window;
  if (!from.empty()) {
    ASSIGN_OR_RETURN(window.from_ns, parse_duration(from));
  }
  if (!to.empty()) {
    ASSIGN_OR_RETURN(window.to_ns, parse_duration(to));
  }
  if (window.from_ns < window.to_ns) return window;
  return usage_error("--to is not after --from", "for example --from 10s --to 20s");
}

Result<std::uint64_t> parse_size(const std::string& text) {
  static constexpr Unit kUnits[] = {
      {"", 1}, {"K", 1024.0}, {"k", 1024.0}, {"M", 1024.0 * 1024}, {"G", 1024.0 * 1024 * 1024}};
  return parse_with_units(text, kUnits, "size", "for example --max-size 500M");
}

}  // namespace dynprof
