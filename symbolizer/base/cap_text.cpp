#include "symbolizer/base/cap_text.h"

namespace dynprof {

std::string cap_text(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  constexpr std::string_view kCut = "…";
  std::size_t end = bytes > kCut.size() ? bytes - kCut.size() : 0;
  // Back over continuation bytes, at most the three that belong to one character: bytes that are
  // not UTF-8 are cut anywhere.
  for (int i = 0; i < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80; ++i) {
    --end;
  }
  return std::string(text.substr(0, end)).append(kCut);
}

}  // namespace dynprof
