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

Result<std::uint64_t> parse_interval(const std::string& text, const char* option) {
  ASSIGN_OR_RETURN(const std::uint64_t interval_ns, parse_duration(text));
  constexpr std::uint64_t kShortest = 100'000'000, kLongest = 3'600'000'000'000;
  if (interval_ns < kShortest || interval_ns > kLongest)
    return usage_error(fmt::format("{} {} is not between 100ms and 1h", option, text),
                       fmt::format("for example {} 2s", option));
  return interval_ns;
}

Result<void> finish_window(const WindowTexts& texts, ExportOptions& exports) {
  if (texts.from.empty() && texts.to.empty() && texts.split.empty()) return {};
  if (exports.format != "chrome")
    return usage_error("--from, --to and --split are for chrome traces", "-f chrome");
  if (!texts.from.empty()) {
    ASSIGN_OR_RETURN(exports.window.from_ns, parse_duration(texts.from));
  }
  if (!texts.to.empty()) {
    ASSIGN_OR_RETURN(exports.window.to_ns, parse_duration(texts.to));
  }
  if (exports.window.from_ns >= exports.window.to_ns)
    return usage_error("--to is not after --from", "for example --from 10s --to 20s");
  if (texts.split.empty()) return {};
  if (texts.split == "rank") {
    exports.split_ns = UINT64_MAX;
    exports.split_ranks = true;
  } else {
    ASSIGN_OR_RETURN(exports.split_ns, parse_duration(texts.split));
  }
  if (exports.split_ns < 1'000'000)
    return usage_error("--split is less than a millisecond", "for example --split 30s");
  if (exports.output == "-" || !exports.symbols.empty())
    return usage_error("--split makes a directory, without --symbols", "-o DIR");
  return {};
}

Result<std::uint64_t> parse_size(const std::string& text) {
  static constexpr Unit kUnits[] = {
      {"", 1}, {"K", 1024.0}, {"k", 1024.0}, {"M", 1024.0 * 1024}, {"G", 1024.0 * 1024 * 1024}};
  return parse_with_units(text, kUnits, "size", "for example --max-size 500M");
}

}  // namespace dynprof
