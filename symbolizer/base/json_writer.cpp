#include "symbolizer/base/json_writer.h"

namespace dynprof {
namespace {

void append_fixed(std::string& out, std::uint64_t value, std::uint64_t unit, int decimals) {
  char digits[32];  // at most 20 digits before the point and 9 after it
  char* end = std::to_chars(digits, digits + 24, value / unit).ptr;
  *end++ = '.';
  std::uint64_t rest = value % unit;
  for (int i = decimals - 1; i >= 0; --i, rest /= 10) end[i] = static_cast<char>('0' + rest % 10);
  out.append(digits, end + decimals);
}

}  // namespace

void append_microseconds(std::string& out, std::uint64_t ns) { append_fixed(out, ns, 1000, 3); }

void append_seconds(std::string& out, std::uint64_t ns) { append_fixed(out, ns, 1'000'000'000, 9); }

}  // namespace dynprof
