// A row of call frame information as the 32 bits of bpf/unwind_format.h.
#pragma once

#include <cstdint>

#include "bpf/unwind_format.h"
#include "user/unwind_tables/cfi_program.h"

namespace dynprof {

std::uint32_t unsupported_rule(dp_unwind_reason reason);
// CFA = rsp + offset, rbp as it was: what synthesized rows need.
std::uint32_t stack_rule(std::int64_t offset);
// A lazy procedure linkage table whose entries have pushed from `threshold` on (0..31).
std::uint32_t plt_rule(std::uint32_t threshold);

std::uint32_t rule_of(const CfiRow& row, bool signal_frame);

}  // namespace dynprof
