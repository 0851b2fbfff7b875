// Numbers of the trace's rows that are no thread's: a tid is added, so that "1000012345" still shows it. Linux gives out
// no tid above 4,194,304 (PID_MAX_LIMIT).
#pragma once

#include <cstdint>

namespace dynprof {

inline constexpr std::int64_t kMaxTid = 4'194'304;
inline constexpr std::int64_t kSpanRowBase = 1'000'000'000;
inline constexpr std::int64_t kRunRowBase = 2'000'000'000;
inline constexpr std::int64_t kOperatorRowBase = 3'000'000'000;
inline constexpr std::int64_t kAnnotationRowBase = 4'000'000'000;
// The programs that a process runs.
inline constexpr std::int64_t kProgramRowBase = 5'000'000'000;
// Only a damaged recording has other tids; they are moved out of the way, so that rows never mix.
inline constexpr std::int64_t kBadTidBase = std::int64_t{1} << 33;

}  // namespace dynprof
