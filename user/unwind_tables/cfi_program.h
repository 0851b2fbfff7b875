// Runs the program of an FDE (DWARF 5 section 6.4.2 and the GNU opcodes): what is kept are the CFA, rbp
// and the return address. Bounded by the program's length, which is bounded by its section's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "user/unwind_tables/byte_source.h"
#include "user/unwind_tables/cfi_index.h"

namespace dynprof {

// Registers as DWARF numbers them on x86-64.
inline constexpr std::uint64_t kDwarfRbx = 3;
inline constexpr std::uint64_t kDwarfRbp = 6;
inline constexpr std::uint64_t kDwarfRsp = 7;
inline constexpr std::uint64_t kDwarfR10 = 10;
inline constexpr std::uint64_t kDwarfR13 = 13;
inline constexpr std::uint64_t kDwarfReturnAddress = 16;

struct CfiLocation {
  enum class Kind : std::uint8_t {
    kUnset,  // as in the caller: unchanged
    kUndefined,
    kSame,
    kAtCfa,         // stored at CFA + offset
    kAtExpression,  // stored at the address that the expression gives
    kElsewhere,     // in a register, or a computed value
  };
  Kind kind = Kind::kUnset;
  std::int64_t offset = 0;
  ByteView expression;
};

struct CfiRow {
  bool cfa_by_expression = false;
  bool cfa_set = false;
  std::uint64_t cfa_register = 0;
  std::int64_t cfa_offset = 0;
  ByteView cfa_expression;
  CfiLocation rbp;
  CfiLocation return_address;
};

inline constexpr std::size_t kMaxRememberedRows = 64;        // compilers nest one or two
inline constexpr std::size_t kMaxProgramOpcodes = 1u << 20;  // of one FDE

enum class CfiOutcome : std::uint8_t { kOk, kDamaged, kLimit };

class CfiProgram {
 public:
  // What a row is given to: code from `begin` (counted as CfiFde's begin) on.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void row(std::uint32_t begin, const CfiRow& row) = 0;
  };

  CfiProgram(const FrameSection& section, const CfiCie& cie, std::uint64_t code_base)
      : section_(section), cie_(cie), code_base_(code_base) {}

  // The CIE's own instructions: the row that each of its FDEs begins with.
  CfiOutcome run_cie(CfiRow& initial);

  // Rows from the FDE's begin up to `end`, in order, at most one per pc. After another outcome than
  // kOk the rows so far stand, and stopped_at() says from where on nothing is known.
  CfiOutcome run_fde(const CfiFde& fde, std::uint32_t end, const CfiRow& initial, Sink& sink);
  std::uint32_t stopped_at() const { return static_cast<std::uint32_t>(at_); }

 private:
  struct Run;
  CfiOutcome run(std::size_t begin, std::size_t end, Sink* sink);
  bool step(Run& run);
  bool step_extended(Run& run, std::uint8_t opcode);
  bool step_cfa(Run& run, std::uint8_t opcode);
  void advance(Run& run, std::uint64_t units);
  void set(std::uint64_t column, CfiLocation::Kind kind, std::int64_t offset = 0,
           ByteView expression = {});
  bool restore(std::uint64_t column);
  bool remember();
  bool recall();

  const FrameSection& section_;
  const CfiCie& cie_;
  std::uint64_t code_base_;
  CfiRow row_;
  const CfiRow* initial_ = nullptr;
  std::uint64_t at_ = 0;
  std::uint64_t end_ = 0;
  bool limit_ = false;
  std::vector<CfiRow> remembered_;
};

}  // namespace dynprof
