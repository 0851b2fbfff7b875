#include "symbolizer/symbols/kernel_symbols.h"

#include <algorithm>
#include <charconv>

namespace dynprof {

KernelSymbols KernelSymbols::parse(std::string_view text) {
  constexpr std::size_t kMaxSymbols = 2'000'000;
  KernelSymbols result;
  while (!text.empty() && result.symbols_.size() < kMaxSymbols) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::uint64_t address = 0;
    auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), address, 16);
    if (failure != std::errc() || address == 0) continue;
    auto rest = line.substr(static_cast<std::size_t>(end - line.data()));
    if (rest.size() < 4 || rest[0] != ' ' || rest[2] != ' ') continue;
    char type = rest[1];
    if (type != 't' && type != 'T' && type != 'w' && type != 'W') continue;
    std::string_view name = rest.substr(3);
    name = name.substr(0, name.find_first_of("\t "));
    if (name.empty() || name.size() > 512) continue;
    result.symbols_.push_back({address, std::string(name)});
  }
  std::stable_sort(result.symbols_.begin(), result.symbols_.end(),
                   [](const Symbol& a, const Symbol& b) { return a.address < b.address; });
  return result;
}

std::optional<std::string> KernelSymbols::find(std::uint64_t address) const {
  auto after = std::upper_bound(
      symbols_.begin(), symbols_.end(), address,
      [](std::uint64_t value, const Symbol& symbol) { return value < symbol.address; });
  if (after == symbols_.begin()) return std::nullopt;
  return (after - 1)->name;
}

}  // namespace dynprof
