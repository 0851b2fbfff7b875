#include "symbolizer/recording/model.h"

namespace dynprof {

std::string_view unreadable_text(Unreadable reason) {
  switch (reason) {
    case Unreadable::kNo:
      return "";
    case Unreadable::kStale:
      return "<stale code>";
    case Unreadable::kFault:
      return "<unreadable code>";
    case Unreadable::kBadLayout:
      return "<unknown code>";
    case Unreadable::kTooLong:
      return "<name too long>";
    case Unreadable::kProcessGone:
      return "<process gone>";
    case Unreadable::kNoSymbol:
      return "<no symbol>";
    case Unreadable::kLost:
      return "<lost>";
  }
  return "<unknown code>";
}

}  // namespace dynprof
