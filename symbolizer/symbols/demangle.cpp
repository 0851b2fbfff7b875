#include "symbolizer/symbols/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace dynprof {
namespace {

// What the demangler may need for one name, for a moment.
constexpr std::uint64_t kMaxText = 16ULL << 20;
// The longest text for a letter: "unsigned long long" for y. Two letters stand for more in "Ss", a string.
constexpr std::uint64_t kLetterText = 18;
constexpr std::uint64_t kStandardNameText = 80;
constexpr std::uint64_t kQualifierText = 9;  // " volatile"

// The number of "S_" (0), "S0_" (1), "SA_" (11) or of "T_" that begins here.
std::optional<std::size_t> reference_at(std::string_view text) {
  constexpr std::size_t kMostDigits = 6;
  if (text.empty() || (text[0] != 'S' && text[0] != 'T')) return std::nullopt;
  std::size_t number = 0;
  for (std::size_t i = 1; i < text.size() && i <= kMostDigits + 1; ++i) {
    const char c = text[i];
    if (c == '_') return i == 1 ? 0 : number + 1;
    if (c >= '0' && c <= '9')
      number = number * 36 + static_cast<std::size_t>(c - '0');
    else if (c >= 'A' && c <= 'Z')
      number = number * 36 + static_cast<std::size_t>(c - 'A') + 10;
    else
      return std::nullopt;
  }
  return std::nullopt;
}

// How many qualifiers a pack expansion puts on each argument of a pack ("RKT_": 2), where it does no more
// than that.
std::optional<std::size_t> qualifiers_of_pack(std::string_view pattern) {
  const std::size_t count = pattern.find_first_not_of("PROKV");
  if (count == pattern.npos || pattern[count] != 'T' || !reference_at(pattern.substr(count)))
    return std::nullopt;
  return count;
}

std::function<std::string(const std::string&)>& long_names() {
  static std::function<std::string(const std::string&)> demangler;
  return demangler;
}

}  // namespace

bool expands_within(std::string_view mangled, std::uint64_t most) {
  std::uint64_t text = 0;
  // By number: how long the text was when a substitution of this number, or of a later one, was first
  // referred to. They are numbered as they come, so it had come by then.
  std::vector<std::uint64_t> substitutions;
  // How long it was at the first reference to a template parameter after a list of arguments could have
  // ended.
  std::uint64_t arguments = 0;
  bool new_arguments = true;
  // A pack expansion repeats what follows for each of its arguments.
  std::uint64_t times = 1;
  for (std::size_t at = 0; at < mangled.size(); ++at) {
    if (text > most) return false;
    const char c = mangled[at];
    text += times * kLetterText;
    const auto number = reference_at(mangled.substr(at));
    if (c == 'E') new_arguments = true;
    if (c == 'S') text += times * kStandardNameText;
    // A constructor's name is that of its class again.
    if (c == 'C' || c == 'D') text += times * mangled.size();
    if (c == 'D' && mangled.substr(at).starts_with("Dp")) {
      if (const auto qualifiers = qualifiers_of_pack(mangled.substr(at + 2)))
        text += kQualifierText * *qualifiers * text;  // an argument has a letter at least
      else
        times = mangled.size();
    }
    if (!number) continue;
    if (c == 'T') {
      if (new_arguments) arguments = text;
      new_arguments = false;
      text += times * arguments;
    } else if (*number <= at) {  // of more than that there cannot have been
      if (substitutions.size() <= *number) substitutions.resize(*number + 1, text);
      text += times * substitutions[*number];
    }
  }
  return text <= most;
}

std::string demangle_unbounded(const std::string& mangled) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || !text) return {};
  return {text.get(), strnlen(text.get(), kMaxSymbolBytes)};
}

void set_long_names(std::function<std::string(const std::string&)> demangler) {
  long_names() = std::move(demangler);
}

std::string demangle(const char* mangled) {
  std::string name(mangled, strnlen(mangled, kMaxMangledBytes));
  if (name.starts_with("_Z") && name.size() < kMaxMangledBytes) {
    std::string text;
    if (expands_within(name, kMaxText))
      text = demangle_unbounded(name);
    else if (long_names())
      text = long_names()(name);
    if (!text.empty()) name = std::move(text);
  }
  if (name.size() > kMaxSymbolBytes) name.resize(kMaxSymbolBytes);
  return name;
}

}  // namespace dynprof
