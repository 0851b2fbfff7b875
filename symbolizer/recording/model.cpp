#include "symbolizer/recording/model.h"

#include <array>

#include "symbolizer/base/enum_text.h"

namespace dynprof {

std::string_view unreadable_text(Unreadable reason) {
  static constexpr const char* kTexts[] = {"",
                                           "<stale code>",
                                           "<unreadable code>",
                                           "<unknown code>",
                                           "<name too long>",
                                           "<process gone>",
                                           "<no symbol>",
                                           "<lost>"};
  return enum_text<Unreadable::kLost>(kTexts, reason, "<unknown code>");
}

std::string_view wait_kind_text(WaitKind kind) {
#define DYNPROF_WAIT_KIND(name, number, text, ...) text,
  static constexpr std::array<std::string_view, kWaitKinds> kTexts = {
      DYNPROF_WAIT_KINDS(DYNPROF_WAIT_KIND)};
#undef DYNPROF_WAIT_KIND
  const auto index = static_cast<std::size_t>(kind);
  return index < kTexts.size() ? kTexts[index] : kTexts[1];
}

const char* line_use_text(LineUse use) {
  switch (use) {
    case LineUse::kTracing:
      return "tracing";
    case LineUse::kGraphEnd:
      return "graph_end";
    case LineUse::kRetracing:
      return "retracing";
    case LineUse::kLowering:
      return "lowering";
  }
  return "";
}

}  // namespace dynprof
