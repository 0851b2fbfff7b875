// Hashes for our own tables. Strings come from the target, which must not be able to choose them so
// that they all collide: hash_bytes takes a seed that is drawn once per table.
#pragma once

#include <sys/random.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace dynprof {

// Both halves of a 64 x 64 multiplication folded together: every input bit reaches every output bit.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline constexpr std::uint64_t kHashFactor = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio, odd

inline std::uint64_t hash_u64(std::uint64_t value) {
  return mix(value ^ 0x2545f4914f6cdd1du, kHashFactor);
}

inline std::uint64_t hash_bytes(std::string_view data, std::uint64_t seed) {
  std::uint64_t hash = seed ^ (data.size() * kHashFactor);
  std::size_t at = 0;
  for (; at + 8 <= data.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data() + at, 8);
    hash = mix(hash ^ word, kHashFactor ^ seed);
  }
  std::uint64_t tail = 0;
  if (at < data.size()) std::memcpy(&tail, data.data() + at, data.size() - at);
  return mix(hash ^ tail, seed ^ 0xd6e8feb86659fd93u);
}

inline std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  // Before the kernel's pool is ready (early boot) the seed stays 0: slower against an attacker,
  // never wrong.
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) seed = 0;
  return seed;
}

}  // namespace dynprof
