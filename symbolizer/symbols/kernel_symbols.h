// Kernel function names, from the text of /proc/kallsyms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dynprof {

class KernelSymbols {
 public:
  // Takes lines "address type name [module]"; others are ignored. All-zero addresses (kptr_restrict)
  // give an empty table.
  static KernelSymbols parse(std::string_view text);
  std::optional<std::string> find(std::uint64_t address) const;
  bool empty() const { return symbols_.empty(); }

 private:
  struct Symbol {
    std::uint64_t address = 0;
    std::string name;
  };
  std::vector<Symbol> symbols_;
};

}  // namespace dynprof
