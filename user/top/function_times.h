// CPU time and waits of Python functions, added up from stacks as they come: for the last seconds, and in all.
// Bounded, whatever functions a process makes. No clock, no system call.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "user/top/reading.h"

namespace dynprof {

class FunctionTimes {
 public:
  using Id = std::uint32_t;
  static constexpr Id kUnknown = 0;  // also each function beyond the limit
  static constexpr std::size_t kMaxFunctions = 20'000;
  static constexpr std::size_t kMaxRows = 1000;  // those with the most time

  enum class Use : std::uint8_t { kCpu, kWait };
  // What a thread did from `begin_ns` to `end_ns`, for `length_ns` of that. The stack: leaf first.
  struct Stretch {
    Use use = Use::kCpu;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    std::uint64_t length_ns = 0;
    std::vector<Id> stack;
  };

  FunctionTimes();
  Id function(const TopPlace& place, bool user);
  void add(const Stretch& stretch);
  // `open`: what goes on at this moment; it is not kept.
  std::vector<TopFunction> rows(std::uint64_t now_ns, std::span<const Stretch> open);

 private:
  // Of one second, or of all.
  struct Sums {
    std::array<std::uint64_t, 2> self{}, all{};  // by Use
  };
  struct Slot {
    std::uint64_t second = 0;
    Sums sums;
  };
  struct Function {
    TopPlace place;
    bool user = false;
    Sums total;
    std::array<Slot, kTopWindowSeconds> slots;  // by the second, modulo their number
    std::uint64_t last_seen = 0;                // the stretch that it was counted for last
  };
  template <class Add>
  void each_once(const Stretch& stretch, const Add& add);

  std::vector<Function> functions_;
  std::unordered_map<std::string, Id> ids_;
  std::uint64_t stretches_ = 0;
};

}  // namespace dynprof
