// Every opcode of a CFI program, by the rule that comes out.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/unwind_fake_elf.h"

namespace dynprof {
namespace {

using fake_elf::Bytes;
using fake_elf::join;
using fake_elf::kCodeAddress;
using fake_elf::sleb;
using fake_elf::uleb;

constexpr std::uint64_t kBegin = kCodeAddress + 0x100;
constexpr std::uint64_t kSize = 0x100;

std::string text_of(std::uint32_t rule) {
  const std::uint32_t rbp = dp_unwind_rbp(rule);
  std::string text;
  const std::string offset = std::to_string(dp_unwind_offset(rule));
  switch (dp_unwind_kind(rule)) {
    case DP_CFA_NONE:
      return "none";
    case DP_CFA_RSP:
      text = "rsp+" + offset;
      break;
    case DP_CFA_RBP:
      text = "rbp+" + offset;
      break;
    case DP_CFA_R10:
      text = "r10+" + offset;
      break;
    case DP_CFA_R13:
      text = "r13+" + offset;
      break;
    case DP_CFA_RBX:
      text = "rbx+" + offset;
      break;
    case DP_CFA_DEREF_RBP:
      text = "*(rbp+" + offset + ")";
      break;
    case DP_CFA_DEREF_RSP:
      text = "*(rsp+" + offset + ")";
      break;
    case DP_CFA_DEREF_RSP_8:
      text = "*(rsp+" + offset + ")+8";
      break;
    case DP_CFA_PLT:
      text = "plt " + std::to_string(dp_unwind_argument(rule));
      break;
    case DP_CFA_SIGNAL:
      return "signal " + offset;
    case DP_CFA_OUTERMOST:
      return "outermost";
    case DP_CFA_UNSUPPORTED:
      return "unsupported " + std::to_string(dp_unwind_argument(rule));
    default:
      return "?";
  }
  if (rbp == DP_RBP_SAME) return text;
  if (rbp == DP_RBP_LOST) return text + " rbp lost";
  return text + (dp_rbp_from_rbp(rbp) ? " rbp *(rbp+" : " rbp *(cfa+") +
         std::to_string(dp_rbp_offset(rbp)) + ")";
}

std::string unsupported(dp_unwind_reason reason) { return "unsupported " + std::to_string(reason); }

// The rule at an offset in the one FDE with this program.
class Program {
 public:
  explicit Program(const Bytes& program, const fake_elf::Cie& cie = {})
      : table_(fake_elf::table_of(
            fake_elf::make(fake_elf::file_of({{kBegin, kSize, program, 0}}, cie)))) {}
  std::string at(std::uint64_t offset = 0) const {
    return table_ ? text_of(table_->rule_at(kBegin + offset)) : table_.error().what;
  }
  const UnwindTable& table() const { return *table_; }

 private:
  Result<UnwindTable> table_;
};

TEST(UnwindProgram, AnEmptyProgramIsItsCies) {
  const Program program({});
  EXPECT_EQ(program.at(), "rsp+8");
  EXPECT_EQ(program.at(kSize - 1), "rsp+8");
  EXPECT_EQ(program.at(kSize), "none");
  EXPECT_EQ(text_of(program.table().rule_at(kBegin - 1)), "none");
  EXPECT_EQ(program.table().rows.size(), 2u);
}

TEST(UnwindProgram, AdvancesOfEveryWidth) {
  // After each step def_cfa_offset of another size.
  const Bytes program = join({{0x40 | 4, 0x0e, 16},
                              {0x02, 5, 0x0e, 24},
                              {0x03, 6, 0, 0x0e, 32},
                              {0x04, 7, 0, 0, 0, 0x0e, 40}});
  const Program run(program);
  EXPECT_EQ(run.at(3), "rsp+8");
  EXPECT_EQ(run.at(4), "rsp+16");
  EXPECT_EQ(run.at(8), "rsp+16");
  EXPECT_EQ(run.at(9), "rsp+24");
  EXPECT_EQ(run.at(15), "rsp+32");
  EXPECT_EQ(run.at(22), "rsp+40");
  EXPECT_EQ(run.at(kSize - 1), "rsp+40");
}

TEST(UnwindProgram, SetLocIsAnAddress) {
  const fake_elf::Cie absolute{"zR", fake_elf::usual_cie_program(), 1, 0x00};
  Bytes program{0x01};
  fake_elf::put_value<std::uint64_t>(program, kBegin + 0x20);
  program = join({program, {0x0e, 16}});
  EXPECT_EQ(Program(program, absolute).at(0x1f), "rsp+8");
  EXPECT_EQ(Program(program, absolute).at(0x20), "rsp+16");
  Bytes back{0x40 | 8, 0x01};
  fake_elf::put_value<std::uint64_t>(back, kBegin);
  EXPECT_EQ(Program(back, absolute).at(8), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program(back, absolute).at(7), "rsp+8");
}

TEST(UnwindProgram, TheFrameBase) {
  EXPECT_EQ(Program({0x0c, 6, 16}).at(), "rbp+16");
  EXPECT_EQ(Program({0x0d, 6}).at(), "rbp+8");
  EXPECT_EQ(Program({0x0e, 0x80, 0x01}).at(), "rsp+128");
  EXPECT_EQ(Program(join({{0x12, 7}, sleb(-4)})).at(), "rsp+32");
  EXPECT_EQ(Program(join({{0x13}, sleb(2)})).at(), "rsp+-16");
  EXPECT_EQ(Program({0x0c, 10, 0}).at(), "r10+0");
  EXPECT_EQ(Program({0x0c, 13, 0}).at(), "r13+0");
  EXPECT_EQ(Program({0x0c, 3, 16}).at(), "rbx+16");
  EXPECT_EQ(Program({0x0c, 5, 0}).at(), unsupported(DP_UNWIND_CFA_REGISTER));
  EXPECT_EQ(Program({0x0e, 12}).at(), unsupported(DP_UNWIND_CFA_OFFSET));
}

TEST(UnwindProgram, LargeFrames) {
  EXPECT_EQ(Program(join({{0x0e}, uleb(0x7fff * 8)})).at(), "rsp+262136");
  EXPECT_EQ(Program(join({{0x0e}, uleb(0x8000 * 8)})).at(), unsupported(DP_UNWIND_CFA_OFFSET));
  EXPECT_EQ(Program(join({{0x0e}, uleb(~std::uint64_t{7})})).at(), "rsp+-8");
}

TEST(UnwindProgram, WhereRbpIs) {
  EXPECT_EQ(Program({0x80 | 6, 2}).at(), "rsp+8 rbp *(cfa+-16)");
  EXPECT_EQ(Program({0x05, 6, 3}).at(), "rsp+8 rbp *(cfa+-24)");
  EXPECT_EQ(Program(join({{0x11, 6}, sleb(4)})).at(), "rsp+8 rbp *(cfa+-32)");
  EXPECT_EQ(Program(join({{0x11, 6}, sleb(-4)})).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program(join({{0x80 | 6}, uleb(0x7ff)})).at(), "rsp+8 rbp *(cfa+-16376)");
  EXPECT_EQ(Program(join({{0x80 | 6}, uleb(0x800)})).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program({0x07, 6}).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program({0x80 | 6, 2, 0x08, 6}).at(), "rsp+8");
  EXPECT_EQ(Program({0x09, 6, 9}).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program({0x14, 6, 2}).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program({0x15, 6, 2}).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program({0x16, 6, 2, 0x76, 0}).at(), "rsp+8 rbp lost");
  // GNU_negative_offset_extended: the factored offset is subtracted.
  EXPECT_EQ(Program({0x2f, 6, 2}).at(), "rsp+8 rbp lost");
}

TEST(UnwindProgram, RbpOfFunctionsThatRealign) {
  EXPECT_EQ(Program({0x10, 6, 2, 0x76, 0}).at(), "rsp+8 rbp *(rbp+0)");
  EXPECT_EQ(Program({0x10, 6, 2, 0x76, 0x78}).at(), "rsp+8 rbp *(rbp+-8)");
  EXPECT_EQ(Program({0x10, 6, 3, 0x76, 0, 0x06}).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program({0x10, 6, 2, 0x77, 0}).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program(join({{0x10, 6, 3, 0x76}, sleb(-0x400 * 8)})).at(), "rsp+8 rbp *(rbp+-8192)");
  EXPECT_EQ(Program(join({{0x10, 6, 3, 0x76}, sleb(-0x401 * 8)})).at(), "rsp+8 rbp lost");
  EXPECT_EQ(Program(join({{0x10, 6, 3, 0x76}, sleb(0x3fe * 8)})).at(), "rsp+8 rbp *(rbp+8176)");
  EXPECT_EQ(Program(join({{0x10, 6, 3, 0x76}, sleb(0x3ff * 8)})).at(), "rsp+8 rbp lost");
}

TEST(UnwindProgram, OtherRegistersDoNotMatter) {
  const Bytes program = {0x80 | 3, 4, 0x07, 12,   0x08, 13, 0x09, 14,   3,        0x05, 15, 2,
                         0x10,     3, 1,    0x50, 0x16, 12, 1,    0x50, 0xc0 | 3, 0x2e, 16, 0x00};
  EXPECT_EQ(Program(program).at(), "rsp+8");
}

TEST(UnwindProgram, RestoresAndRemembers) {
  EXPECT_EQ(Program({0x80 | 6, 2, 0xc0 | 6}).at(), "rsp+8");
  EXPECT_EQ(Program({0x80 | 6, 2, 0x06, 6}).at(), "rsp+8");
  const Program nested({0x0e, 16, 0x80 | 6, 2, 0x0a, 0x41, 0x0d, 6, 0x0a, 0x41, 0x0c, 7, 8,
                        0xc0 | 6, 0x41, 0x0b, 0x41, 0x0b});
  EXPECT_EQ(nested.at(0), "rsp+16 rbp *(cfa+-16)");
  EXPECT_EQ(nested.at(1), "rbp+16 rbp *(cfa+-16)");
  EXPECT_EQ(nested.at(2), "rsp+8");
  EXPECT_EQ(nested.at(3), "rbp+16 rbp *(cfa+-16)");
  EXPECT_EQ(nested.at(4), "rsp+16 rbp *(cfa+-16)");
}

TEST(UnwindProgram, ExpressionsOfTheFrame) {
  EXPECT_EQ(Program({0x0f, 3, 0x76, 0x58, 0x06}).at(), "*(rbp+-40)");
  EXPECT_EQ(Program({0x0f, 3, 0x77, 0x08, 0x06}).at(), "*(rsp+8)");
  EXPECT_EQ(Program({0x0f, 2, 0x77, 0x08}).at(), "rsp+8");
  EXPECT_EQ(Program({0x0f, 5, 0x77, 0x08, 0x06, 0x23, 8}).at(), "*(rsp+8)+8");
  EXPECT_EQ(Program({0x0f, 5, 0x76, 0x08, 0x06, 0x23, 8}).at(),
            unsupported(DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(Program({0x0f, 5, 0x77, 0x08, 0x06, 0x23, 16}).at(),
            unsupported(DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(Program({0x0f, 6, 0x77, 0x08, 0x06, 0x23, 8, 0x06}).at(),
            unsupported(DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(Program({0x0f, 2, 0x76, 0x10}).at(), "rbp+16");
  EXPECT_EQ(Program({0x0f, 3, 0x7a, 0x00, 0x06}).at(), unsupported(DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(Program({0x0f, 4, 0x76, 0x58, 0x06, 0x06}).at(), unsupported(DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(Program({0x0f, 0}).at(), unsupported(DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(Program({0x0f, 1, 0x76}).at(), unsupported(DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(Program({0x0f, 3, 0x76, 0x01, 0x06}).at(), unsupported(DP_UNWIND_CFA_OFFSET));
  // A frame base that is an expression has no register or offset to change.
  EXPECT_EQ(Program({0x0f, 2, 0x77, 8, 0x0e, 16}).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program({0x0f, 2, 0x77, 8, 0x0d, 6}).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program({0x0f, 2, 0x77, 8, 0x0c, 6, 16}).at(), "rbp+16");
}

TEST(UnwindProgram, TheLinkageTable) {
  const auto program = [](std::uint8_t literal) {
    return Bytes{0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, literal, 0x2a, 0x33, 0x24, 0x22};
  };
  EXPECT_EQ(Program(program(0x3b)).at(), "plt 11");
  EXPECT_EQ(Program(program(0x39)).at(), "plt 9");
  EXPECT_EQ(Program(program(0x20)).at(), unsupported(DP_UNWIND_CFA_EXPRESSION));
  Bytes other = program(0x3b);
  other[3] = 16;
  EXPECT_EQ(Program(other).at(), unsupported(DP_UNWIND_CFA_EXPRESSION));
}

TEST(UnwindProgram, SignalFrames) {
  const fake_elf::Cie signal{"zRS", fake_elf::usual_cie_program(), 1, 0x1b};
  EXPECT_EQ(Program({0x0f, 4, 0x77, 0xa0, 0x01, 0x06}, signal).at(), "signal 160");
  EXPECT_EQ(Program({0x0f, 4, 0x77, 0xa8, 0x01, 0x06}, signal).at(),
            unsupported(DP_UNWIND_SIGNAL_FRAME));
  EXPECT_EQ(Program({}, signal).at(), unsupported(DP_UNWIND_SIGNAL_FRAME));
}

TEST(UnwindProgram, TheReturnAddress) {
  EXPECT_EQ(Program({0x07, 16}).at(), "outermost");
  EXPECT_EQ(Program({0x09, 16, 2}).at(), unsupported(DP_UNWIND_RETURN_ADDRESS));
  EXPECT_EQ(Program({0x80 | 16, 2}).at(), unsupported(DP_UNWIND_RETURN_ADDRESS));
  EXPECT_EQ(Program({0x08, 16}).at(), unsupported(DP_UNWIND_RETURN_ADDRESS));
  EXPECT_EQ(Program({0x09, 16, 2, 0xc0 | 16}).at(), "rsp+8");
  EXPECT_EQ(Program({}, {"zR", {}, 1, 0x1b}).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program({0x0c, 7, 8}, {"zR", {}, 1, 0x1b}).at(), unsupported(DP_UNWIND_RETURN_ADDRESS));
}

TEST(UnwindProgram, DamageKeepsTheRowsBefore) {
  for (const Bytes& tail : {Bytes{0x17}, Bytes{0x3f}, Bytes{0x0b}, Bytes{0x0e}, Bytes{0x03, 1},
                            Bytes{0x0f, 9, 0x77}, Bytes{0x0e, 0x80}}) {
    const Program program(join({{0x44, 0x0e, 16, 0x44}, tail}));
    EXPECT_EQ(program.at(3), "rsp+8");
    EXPECT_EQ(program.at(4), "rsp+16");
    EXPECT_EQ(program.at(8), unsupported(DP_UNWIND_BAD_PROGRAM));
    EXPECT_EQ(program.at(kSize), "none");
    EXPECT_EQ(program.table().stats.unsupported[DP_UNWIND_BAD_PROGRAM], 1u);
    EXPECT_EQ(program.table().stats.unsupported_rows(), 1u);
  }
}

TEST(UnwindProgram, NumbersWiderThan64Bits) {
  const Bytes wide(9, 0xff);
  EXPECT_EQ(Program(join({{0x0e}, wide, {0x7f}})).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program(join({{0x0e}, wide, {0x80, 0x01}})).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program(join({{0x13}, wide, {0x02}})).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program(join({{0x13}, Bytes(9, 0x80), {0x00}})).at(), "rsp+0");
}

TEST(UnwindProgram, TooDeeplyRemembered) {
  Bytes program(kMaxRememberedRows, 0x0a);
  EXPECT_EQ(Program(program).at(), "rsp+8");
  program.push_back(0x0a);
  EXPECT_EQ(Program(program).at(), unsupported(DP_UNWIND_PROGRAM_LIMIT));
}

TEST(UnwindProgram, BeyondItsEndAProgramMayGoOn) {
  const Program program({0x04, 0, 1, 0, 0, 0x0e, 16});
  EXPECT_EQ(program.at(kSize - 1), "rsp+8");
  EXPECT_EQ(program.at(kSize), "none");
  EXPECT_EQ(Program(join({{0x04, 0xff, 0xff, 0xff, 0xff}, {0x3f}})).at(), "rsp+8");
}

TEST(UnwindProgram, ADamagedCieMakesItsFdesUnsupported) {
  EXPECT_EQ(Program({}, {"zR", {0x0a, 0x3f}, 1, 0x1b}).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program({}, {"zR", {0xc0 | 6}, 1, 0x1b}).at(), unsupported(DP_UNWIND_BAD_PROGRAM));
  EXPECT_EQ(Program({}, {"zRX", {}, 1, 0x1b}).at(), unsupported(DP_UNWIND_BAD_CIE));
}

}  // namespace
}  // namespace dynprof
