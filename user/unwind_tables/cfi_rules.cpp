#include "user/unwind_tables/cfi_rules.h"

#include <cstddef>
#include <optional>

#include "user/unwind_tables/cfi_cursor.h"

namespace dynprof {
namespace {

using Kind = CfiLocation::Kind;

enum ExpressionOpcode : std::uint8_t {
  kDeref = 0x06,
  kAnd = 0x1a,
  kPlus = 0x22,
  kPlusUconst = 0x23,
  kShl = 0x24,
  kGe = 0x2a,
  kLit0 = 0x30,
  kBreg0 = 0x70,
};

constexpr std::int64_t kMinWords = -0x8000;
constexpr std::int64_t kMaxWords = 0x7fff;
constexpr std::int64_t kRbpReach = 0x400;  // words below rbp; two fewer above, which mean "lost"

std::uint32_t pack(std::uint32_t kind, std::uint32_t offset, std::uint32_t rbp) {
  return kind | (offset & 0xffffu) << 4 | rbp << 20;
}

std::optional<std::uint32_t> words(std::int64_t offset) {
  if (offset % 8 != 0 || offset / 8 < kMinWords || offset / 8 > kMaxWords) return std::nullopt;
  return static_cast<std::uint32_t>(offset / 8) & 0xffffu;
}

// `DW_OP_bregN offset`, then DW_OP_deref where `deref`, then `DW_OP_plus_uconst 8` where `plus_8`;
// nothing behind.
struct BaseExpression {
  std::uint64_t base = 0;
  std::int64_t offset = 0;
  bool deref = false;
  bool plus_8 = false;
};

std::optional<BaseExpression> base_expression(ByteView expression) {
  CfiCursor cursor(expression, 0, 0, expression.size());
  const std::uint8_t opcode = cursor.u8();
  if (opcode < kBreg0 || opcode >= kBreg0 + 32) return std::nullopt;
  BaseExpression result;
  result.base = opcode - kBreg0;
  result.offset = cursor.sleb();
  if (!cursor.done()) {
    if (cursor.u8() != kDeref) return std::nullopt;
    result.deref = true;
  }
  if (!cursor.done()) {
    if (cursor.u8() != kPlusUconst || cursor.uleb() != 8 || !cursor.done()) return std::nullopt;
    result.plus_8 = true;
  }
  if (!cursor.ok()) return std::nullopt;
  return result;
}

// What the linkers write for a lazy .plt: rsp + 8 + ((rip & 15) >= N) << 3. N is 11, with branch
// protection 9 or 10.
std::optional<std::uint32_t> plt_threshold(ByteView expression) {
  constexpr std::uint8_t kShape[] = {kBreg0 + 7, 8,   kBreg0 + 16, 0,    kLit0 + 15, kAnd,
                                     kLit0,      kGe, kLit0 + 3,   kShl, kPlus};
  constexpr std::size_t kThresholdAt = 6;
  if (expression.size() != sizeof kShape) return std::nullopt;
  for (std::size_t i = 0; i < sizeof kShape; ++i) {
    if (i != kThresholdAt && expression[i] != kShape[i]) return std::nullopt;
  }
  const std::uint8_t literal = expression[kThresholdAt];
  if (literal < kLit0 || literal >= kLit0 + 32) return std::nullopt;
  return literal - kLit0;
}

std::uint32_t rbp_at_expression(ByteView expression) {
  const auto base = base_expression(expression);
  if (!base || base->deref || base->base != kDwarfRbp || base->offset % 8 != 0) return DP_RBP_LOST;
  const std::int64_t count = base->offset / 8;
  if (count < -kRbpReach || count > kRbpReach - 2) return DP_RBP_LOST;
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(DP_RBP_ZERO) + count);
}

std::uint32_t rbp_field(const CfiLocation& rbp) {
  switch (rbp.kind) {
    case Kind::kUnset:
    case Kind::kSame:
      return DP_RBP_SAME;
    case Kind::kAtCfa:
      if (rbp.offset % 8 != 0 || rbp.offset >= 0 ||
          rbp.offset <= -8 * static_cast<std::int64_t>(DP_RBP_RBP)) {
        return DP_RBP_LOST;
      }
      return static_cast<std::uint32_t>(-rbp.offset / 8);
    case Kind::kAtExpression:
      return rbp_at_expression(rbp.expression);
    case Kind::kUndefined:
    case Kind::kElsewhere:
      break;
  }
  return DP_RBP_LOST;
}

std::optional<std::uint32_t> register_kind(std::uint64_t number) {
  switch (number) {
    case kDwarfRsp:
      return DP_CFA_RSP;
    case kDwarfRbp:
      return DP_CFA_RBP;
    case kDwarfRbx:
      return DP_CFA_RBX;
    case kDwarfR10:
      return DP_CFA_R10;
    case kDwarfR13:
      return DP_CFA_R13;
    default:
      return std::nullopt;
  }
}

// A signal frame on x86-64 is the kernel's: rsp points at a ucontext, whose registers stand where
// glibc's and the vdso's own unwind information says. Other layouts are not guessed.
std::uint32_t signal_rule(const CfiRow& row) {
  constexpr std::int64_t kSavedRsp = 160;  // offsetof(ucontext_t, uc_mcontext.gregs[REG_RSP])
  const auto base = row.cfa_by_expression ? base_expression(row.cfa_expression) : std::nullopt;
  if (!base || !base->deref || base->plus_8 || base->base != kDwarfRsp ||
      base->offset != kSavedRsp) {
    return unsupported_rule(DP_UNWIND_SIGNAL_FRAME);
  }
  return pack(DP_CFA_SIGNAL, kSavedRsp / 8, DP_RBP_SAME);
}

std::uint32_t expression_rule(const CfiRow& row, std::uint32_t rbp) {
  if (const auto threshold = plt_threshold(row.cfa_expression)) {
    return pack(DP_CFA_PLT, *threshold, rbp);
  }
  const auto base = base_expression(row.cfa_expression);
  if (!base) return unsupported_rule(DP_UNWIND_CFA_EXPRESSION);
  const auto kind = register_kind(base->base);
  const bool can_deref = base->base == kDwarfRsp || base->base == kDwarfRbp;
  if (!kind || (base->deref && !can_deref) || (base->plus_8 && base->base != kDwarfRsp)) {
    return unsupported_rule(DP_UNWIND_CFA_EXPRESSION);
  }
  const auto offset = words(base->offset);
  if (!offset) return unsupported_rule(DP_UNWIND_CFA_OFFSET);
  if (base->plus_8) return pack(DP_CFA_DEREF_RSP_8, *offset, rbp);
  if (!base->deref) return pack(*kind, *offset, rbp);
  return pack(base->base == kDwarfRsp ? DP_CFA_DEREF_RSP : DP_CFA_DEREF_RBP, *offset, rbp);
}

}  // namespace

std::uint32_t unsupported_rule(dp_unwind_reason reason) {
  return pack(DP_CFA_UNSUPPORTED, static_cast<std::uint32_t>(reason), DP_RBP_LOST);
}

std::uint32_t stack_rule(std::int64_t offset) {
  return pack(DP_CFA_RSP, words(offset).value_or(0), DP_RBP_SAME);
}

std::uint32_t plt_rule(std::uint32_t threshold) { return pack(DP_CFA_PLT, threshold, DP_RBP_SAME); }

std::uint32_t rule_of(const CfiRow& row, bool signal_frame) {
  if (signal_frame) return signal_rule(row);
  const CfiLocation& back = row.return_address;
  if (back.kind == Kind::kUndefined) return pack(DP_CFA_OUTERMOST, 0, DP_RBP_LOST);
  if (!row.cfa_set) return unsupported_rule(DP_UNWIND_BAD_PROGRAM);
  if (back.kind != Kind::kAtCfa || back.offset != -8) {
    return unsupported_rule(DP_UNWIND_RETURN_ADDRESS);
  }
  const std::uint32_t rbp = rbp_field(row.rbp);
  if (row.cfa_by_expression) return expression_rule(row, rbp);
  const auto kind = register_kind(row.cfa_register);
  if (!kind) return unsupported_rule(DP_UNWIND_CFA_REGISTER);
  const auto offset = words(row.cfa_offset);
  if (!offset) return unsupported_rule(DP_UNWIND_CFA_OFFSET);
  return pack(*kind, *offset, rbp);
}

}  // namespace dynprof
