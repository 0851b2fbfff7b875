#include "symbolizer/attribution/compile.h"

#include <fmt/format.h>

namespace dynprof {

// As torch's CompileId.__str__ (torch/_guards.py): what tlparse and TORCH_LOGS print.
std::string TraceId::text() const {
  std::string frame_text = frame >= 0 ? fmt::format("{}/{}", frame, compile) : "";
  if (autograd < 0) return frame_text;
  return frame_text.empty() ? fmt::format("!{}", autograd)
                            : fmt::format("!{}/{}", autograd, frame_text);
}

const char* compile_kind_text(CompileKind kind) {
  switch (kind) {
    case CompileKind::kForward:
      return "forward";
    case CompileKind::kBackward:
      return "backward";
    case CompileKind::kCompiledAutograd:
      return "compiled_autograd";
    case CompileKind::kExport:
      return "export";
  }
  return "forward";
}

}  // namespace dynprof
