#include "user/unwind_tables/cfi_program.h"

#include "user/unwind_tables/cfi_cursor.h"

namespace dynprof {
namespace {

using Kind = CfiLocation::Kind;

enum Opcode : std::uint8_t {
  kNop = 0x00,
  kSetLoc = 0x01,
  kAdvanceLoc1 = 0x02,
  kAdvanceLoc2 = 0x03,
  kAdvanceLoc4 = 0x04,
  kOffsetExtended = 0x05,
  kRestoreExtended = 0x06,
  kUndefined = 0x07,
  kSameValue = 0x08,
  kRegister = 0x09,
  kRememberState = 0x0a,
  kRestoreState = 0x0b,
  kDefCfa = 0x0c,
  kDefCfaRegister = 0x0d,
  kDefCfaOffset = 0x0e,
  kDefCfaExpression = 0x0f,
  kExpression = 0x10,
  kOffsetExtendedSf = 0x11,
  kDefCfaSf = 0x12,
  kDefCfaOffsetSf = 0x13,
  kValOffset = 0x14,
  kValOffsetSf = 0x15,
  kValExpression = 0x16,
  kGnuArgsSize = 0x2e,
  kGnuNegativeOffsetExtended = 0x2f,
  // These three have their operand in the low six bits.
  kAdvanceLoc = 0x40,
  kOffset = 0x80,
  kRestore = 0xc0,
};

// Factored operands: wrapped, not trapped, when hostile; what comes out is range-checked later.
std::int64_t factored(std::uint64_t value, std::int64_t factor) {
  return static_cast<std::int64_t>(value * static_cast<std::uint64_t>(factor));
}
std::int64_t factored(std::int64_t value, std::int64_t factor) {
  return factored(static_cast<std::uint64_t>(value), factor);
}

}  // namespace

struct CfiProgram::Run {
  CfiCursor cursor;
  Sink* sink;
};

void CfiProgram::set(std::uint64_t column, Kind kind, std::int64_t offset, ByteView expression) {
  if (column == kDwarfRbp) {
    row_.rbp = {kind, offset, expression};
  } else if (column == kDwarfReturnAddress) {
    row_.return_address = {kind, offset, expression};
  }
}

bool CfiProgram::restore(std::uint64_t column) {
  if (initial_ == nullptr) return false;
  if (column == kDwarfRbp) row_.rbp = initial_->rbp;
  if (column == kDwarfReturnAddress) row_.return_address = initial_->return_address;
  return true;
}

bool CfiProgram::remember() {
  if (remembered_.size() >= kMaxRememberedRows) {
    limit_ = true;
    return false;
  }
  remembered_.push_back(row_);
  return true;
}

bool CfiProgram::recall() {
  if (remembered_.empty()) return false;
  row_ = remembered_.back();
  remembered_.pop_back();
  return true;
}

void CfiProgram::advance(Run& run, std::uint64_t units) {
  if (units == 0) return;
  if (run.sink != nullptr) run.sink->row(static_cast<std::uint32_t>(at_), row_);
  at_ += units * cie_.code_alignment;
}

bool CfiProgram::step_cfa(Run& run, std::uint8_t opcode) {
  CfiCursor& cursor = run.cursor;
  switch (opcode) {
    case kDefCfa:
      row_.cfa_register = cursor.uleb();
      row_.cfa_offset = static_cast<std::int64_t>(cursor.uleb());
      break;
    case kDefCfaSf:
      row_.cfa_register = cursor.uleb();
      row_.cfa_offset = factored(cursor.sleb(), cie_.data_alignment);
      break;
    case kDefCfaRegister:
      if (!row_.cfa_set || row_.cfa_by_expression) return false;
      row_.cfa_register = cursor.uleb();
      break;
    case kDefCfaOffset:
      if (!row_.cfa_set || row_.cfa_by_expression) return false;
      row_.cfa_offset = static_cast<std::int64_t>(cursor.uleb());
      break;
    case kDefCfaOffsetSf:
      if (!row_.cfa_set || row_.cfa_by_expression) return false;
      row_.cfa_offset = factored(cursor.sleb(), cie_.data_alignment);
      break;
    case kDefCfaExpression:
      row_.cfa_expression = cursor.bytes(cursor.uleb());
      row_.cfa_set = row_.cfa_by_expression = true;
      return true;
    default:
      return false;
  }
  row_.cfa_set = true;
  row_.cfa_by_expression = false;
  return true;
}

bool CfiProgram::step_extended(Run& run, std::uint8_t opcode) {
  CfiCursor& cursor = run.cursor;
  std::uint64_t column = 0;
  switch (opcode) {
    case kUndefined:
      set(cursor.uleb(), Kind::kUndefined);
      return true;
    case kSameValue:
      set(cursor.uleb(), Kind::kSame);
      return true;
    case kRestoreExtended:
      return restore(cursor.uleb());
    case kRegister:
      column = cursor.uleb();
      cursor.uleb();
      set(column, Kind::kElsewhere);
      return true;
    case kOffsetExtended:
      column = cursor.uleb();
      set(column, Kind::kAtCfa, factored(cursor.uleb(), cie_.data_alignment));
      return true;
    case kOffsetExtendedSf:
      column = cursor.uleb();
      set(column, Kind::kAtCfa, factored(cursor.sleb(), cie_.data_alignment));
      return true;
    case kGnuNegativeOffsetExtended:
      column = cursor.uleb();
      set(column, Kind::kAtCfa, factored(0 - cursor.uleb(), cie_.data_alignment));
      return true;
    case kValOffset:
      column = cursor.uleb();
      cursor.uleb();
      set(column, Kind::kElsewhere);
      return true;
    case kValOffsetSf:
      column = cursor.uleb();
      cursor.sleb();
      set(column, Kind::kElsewhere);
      return true;
    case kExpression:
      column = cursor.uleb();
      set(column, Kind::kAtExpression, 0, cursor.bytes(cursor.uleb()));
      return true;
    case kValExpression:
      column = cursor.uleb();
      cursor.skip(cursor.uleb());
      set(column, Kind::kElsewhere);
      return true;
    default:
      return step_cfa(run, opcode);
  }
}

bool CfiProgram::step(Run& run) {
  CfiCursor& cursor = run.cursor;
  const std::uint8_t opcode = cursor.u8();
  const std::uint8_t low = opcode & 0x3f;
  switch (opcode & 0xc0) {
    case kAdvanceLoc:
      advance(run, low);
      return true;
    case kOffset:
      set(low, Kind::kAtCfa, factored(cursor.uleb(), cie_.data_alignment));
      return true;
    case kRestore:
      return restore(low);
    default:
      break;
  }
  switch (opcode) {
    case kNop:
      return true;
    case kAdvanceLoc1:
      advance(run, cursor.u8());
      return true;
    case kAdvanceLoc2:
      advance(run, cursor.u16());
      return true;
    case kAdvanceLoc4:
      advance(run, cursor.u32());
      return true;
    case kSetLoc: {
      const std::uint64_t to = cursor.pointer(cie_.encoding) - code_base_;
      if (!cursor.ok() || to < at_) return false;
      if (to != at_ && run.sink != nullptr) run.sink->row(static_cast<std::uint32_t>(at_), row_);
      at_ = to;
      return true;
    }
    case kRememberState:
      return remember();
    case kRestoreState:
      return recall();
    case kGnuArgsSize:
      cursor.uleb();
      return true;
    default:
      return step_extended(run, opcode);
  }
}

CfiOutcome CfiProgram::run(std::size_t begin, std::size_t end, Sink* sink) {
  Run run{CfiCursor(section_.data.view(), section_.address, begin, end), sink};
  for (std::size_t opcodes = 0; !run.cursor.done(); ++opcodes) {
    if (opcodes >= kMaxProgramOpcodes) return CfiOutcome::kLimit;
    if (!step(run) || !run.cursor.ok()) return limit_ ? CfiOutcome::kLimit : CfiOutcome::kDamaged;
    if (sink != nullptr && at_ >= end_) return CfiOutcome::kOk;
  }
  return run.cursor.ok() ? CfiOutcome::kOk : CfiOutcome::kDamaged;
}

CfiOutcome CfiProgram::run_cie(CfiRow& initial) {
  row_ = {};
  initial_ = nullptr;
  remembered_.clear();
  limit_ = false;
  const CfiOutcome outcome = run(cie_.program_begin, cie_.program_end, nullptr);
  initial = row_;
  return outcome;
}

CfiOutcome CfiProgram::run_fde(const CfiFde& fde, std::uint32_t end, const CfiRow& initial,
                               Sink& sink) {
  row_ = initial;
  initial_ = &initial;
  remembered_.clear();
  limit_ = false;
  at_ = fde.begin;
  end_ = end;
  const CfiOutcome outcome = run(fde.program_begin, fde.program_end, &sink);
  if (outcome == CfiOutcome::kOk && at_ < end_) sink.row(static_cast<std::uint32_t>(at_), row_);
  return outcome;
}

}  // namespace dynprof
