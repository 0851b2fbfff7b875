#include "symbolizer/symbols/gpu_kernel_name.h"

#include "symbolizer/base/cap_text.h"
#include "symbolizer/symbols/demangle.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxMangled = 8192;

}  // namespace

std::string gpu_kernel_name(std::string_view mangled) {
  if (mangled.empty()) return "<kernel without a name>";
  if (mangled.size() > kMaxMangled) return cap_text(mangled);
  return cap_text(demangle(std::string(mangled).c_str()));
}

}  // namespace dynprof
