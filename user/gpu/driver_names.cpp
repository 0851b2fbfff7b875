#include "user/gpu/driver_names.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "symbolizer/symbols/gpu_kernel_name.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kNameAt = 8;
constexpr std::uint64_t kAgeNs = 1'000'000'000;
constexpr std::size_t kMaxHandles = 1 << 16;
constexpr std::size_t kMaxBytes = 4096;
constexpr std::size_t kMaxAllBytes = 16 << 20;

// As symbols of device code are.
bool may_be_symbol(std::string_view text) {
  constexpr auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '.';
  };
  constexpr auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && !is_digit(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

bool may_be_address(std::uint64_t value) { return value >= 4096 && value < (1ULL << 47); }

}  // namespace

std::string DriverNames::read(std::uint64_t handle) {
  if (!plausible_pointer(handle)) return {};
  const auto address = memory_.read<std::uint64_t>(handle + kNameAt);
  if (!address || !may_be_address(*address)) return {};
  auto text = memory_.read_c_string(*address, kMaxBytes);
  return text && may_be_symbol(*text) ? *std::move(text) : std::string();
}

const std::string& DriverNames::of(std::uint64_t handle, std::uint64_t now_ns) {
  if (known_.size() >= kMaxHandles || bytes_ >= kMaxAllBytes) {
    known_.clear();
    bytes_ = 0;
  }
  Known& known = known_[handle];
  if (known.read_ns != 0 && now_ns < known.read_ns + kAgeNs) return known.name;
  known.read_ns = now_ns;
  std::string mangled = read(handle);
  if (mangled == known.mangled) return known.name;
  known.name = mangled.empty() ? std::string() : gpu_kernel_name(mangled);
  known.mangled = std::move(mangled);
  bytes_ += known.name.size() + known.mangled.size();
  return known.name;
}

}  // namespace dynprof
