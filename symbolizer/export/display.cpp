#include "symbolizer/export/display.h"

#include "symbolizer/symbols/short_name.h"

namespace dynprof {

std::string display_name(const ResolvedFrame& frame) {
  if (frame.function.empty()) return "<no name>";
  if (frame.kind == FrameKind::kNative) return cap_text(short_name(frame.function));
  std::string name = cap_text(frame.function);
  if (name == "<module>" && !frame.file.empty()) {
    name += ' ' + cap_text(base_name(frame.file));
  }
  return name;
}

}  // namespace dynprof
