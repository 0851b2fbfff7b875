#include "symbolizer/attribution/compile.h"

#include <fmt/format.h>

#include <charconv>

namespace dynprof {

// As torch's CompileId.__str__ (torch/_guards.py): what tlparse and TORCH_LOGS print.
std::string TraceId::text() const {
  std::string frame_text = frame >= 0 ? fmt::format("{}/{}", frame, compile) : "";
  if (autograd < 0) return frame_text;
  return frame_text.empty() ? fmt::format("!{}", autograd)
                            : fmt::format("!{}/{}", autograd, frame_text);
}

TraceId parse_trace_id(std::string_view text) {
  TraceId id;
  auto number = [&](std::int32_t& into) {
    auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), into);
    if (failure != std::errc() || into < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  auto slash = [&] {
    if (!text.starts_with('/')) return false;
    text.remove_prefix(1);
    return true;
  };
  if (text.starts_with('!')) {
    text.remove_prefix(1);
    if (!number(id.autograd)) return {};
    if (text.empty()) return id;
    if (!slash()) return {};
  }
  bool whole = number(id.frame) && slash() && number(id.compile) && text.empty();
  return whole ? id : TraceId{};
}

bool is_valid(const TraceId& id) {
  bool has_frame = id.frame >= 0 && id.compile >= 0;
  bool has_no_frame = id.frame < 0 && id.compile < 0;
  return has_frame || (has_no_frame && id.autograd >= 0);
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
