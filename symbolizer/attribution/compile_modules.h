// The nn.Modules whose operators each compile was at: traced, traced again and lowered. From samples of the
// target's memory, some 20 a second, as compile_lines.h. Paths come from the target.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/compile_lines.h"

namespace dynprof {

struct ModuleTime {
  std::string path;  // "Transformer.blocks.0.attention": see module_path()
  std::array<std::uint64_t, kLineUses.size()> ns{};  // by use, in the order of kLineUses
  std::uint64_t of(LineUse use) const { return ns[static_cast<std::size_t>(use) - 1]; }
  std::uint64_t sum_ns() const;
};

class CompileModules {
 public:
  explicit CompileModules(const Attribution& attribution);

  // The innermost modules, most time first.
  const std::vector<ModuleTime>& of(CompileIndex compile) const { return modules_[compile]; }

 private:
  std::vector<std::vector<ModuleTime>> modules_;
};

// torch's "L['self'].blocks.0" as one would write it: the class that the compiled function is of stands for
// `self`, any other variable for itself: "Transformer.blocks.0", "model.blocks.0".
std::string module_path(std::string_view source, std::string_view qualname);

}  // namespace dynprof
