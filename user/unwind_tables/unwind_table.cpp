#include "user/unwind_tables/unwind_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "user/unwind_tables/cfi_program.h"
#include "user/unwind_tables/cfi_rules.h"

namespace dynprof {
namespace {

// Of a linkage table that was synthesized: FDEs of these CIE numbers have no program.
constexpr std::uint32_t kLazyPlt = 0xfffffffe;
constexpr std::uint32_t kDirectPlt = 0xffffffff;
// What can follow a program's last row: that the rest is damaged, its end, and cut()'s two.
constexpr std::size_t kRowsBehindProgram = 4;
constexpr std::size_t kRowsOfLinkageTable = 3;
constexpr std::uint32_t kAlignment = 16;       // of functions
constexpr std::uint32_t kPltHeader = 16;       // bytes of the first entry of a lazy .plt
constexpr std::uint32_t kPltHeaderPushed = 6;  // after its `push GOT+8(%rip)`

// Rows in order of pc. Equal neighbours become one; what a pc is given twice, the second time counts.
class RowList {
 public:
  explicit RowList(std::size_t expected) { rows_.reserve(expected); }

  void add(std::uint32_t pc, std::uint32_t rule) {
    if (!rows_.empty() && rows_.back().pc == pc) rows_.pop_back();
    const std::uint32_t before = rows_.empty() ? std::uint32_t{DP_CFA_NONE} : rows_.back().rule;
    if (before != rule) rows_.push_back({pc, rule});
  }
  std::size_t size() const { return rows_.size(); }
  std::vector<dp_unwind_row> take() {
    rows_.shrink_to_fit();
    return std::move(rows_);
  }

 private:
  std::vector<dp_unwind_row> rows_;
};

class TableBuilder final : private CfiProgram::Sink {
 public:
  TableBuilder(const UnwindInput& input, const UnwindOptions& options)
      : input_(input),
        options_(options),
        base_(input.layout.code_base().value_or(0)),
        rows_(expected_rows()) {}

  Result<UnwindTable> build() {
    if (input_.layout.code_end() - base_ > UINT32_MAX) return error("has more than 4 GiB of code");
    for (std::size_t i = 0; i < input_.sections.size(); ++i) {
      index_section(input_.sections[i], static_cast<std::uint8_t>(i), input_.layout, index_);
    }
    add_linkage_tables();
    if (index_.fdes.empty()) return error("has no unwind information");
    sort_fdes();
    initial_.resize(index_.cies.size());
    TRY(run_fdes());
    return finish();
  }

 private:
  struct InitialRow {
    bool made = false;
    CfiOutcome outcome = CfiOutcome::kOk;
    CfiRow row;
  };

  // A row takes eight bytes of .eh_frame on the average: measured 8.0 in libtorch_cpu.so, 7.7 in
  // libc. What is too much is given back at the end, and was never touched.
  std::size_t expected_rows() const {
    std::size_t bytes = 0;
    for (const FrameSection& section : input_.sections) bytes += section.data.view().size();
    return std::min(bytes / 7 + 64, options_.max_rows);
  }

  void sort_fdes() {
    // FDEs of .eh_frame come first in the list, so they win over .debug_frame's for the same code.
    const auto before = [](const CfiFde& a, const CfiFde& b) { return a.begin < b.begin; };
    if (std::is_sorted(index_.fdes.begin(), index_.fdes.end(), before)) return;
    std::stable_sort(index_.fdes.begin(), index_.fdes.end(), before);
  }

  bool described(const ElfSection& section) const {
    const std::uint64_t begin = section.address - base_;
    return std::any_of(index_.fdes.begin(), index_.fdes.end(), [&](const CfiFde& fde) {
      return fde.begin < begin + section.size && begin < std::uint64_t{fde.begin} + fde.size;
    });
  }

  // lld and mold leave linkage tables without unwind information.
  void add_linkage_tables() {
    add_linkage_table(input_.layout.plt, plt_threshold() ? kLazyPlt : kDirectPlt);
    add_linkage_table(input_.layout.plt_got, kDirectPlt);
    add_linkage_table(input_.layout.plt_sec, kDirectPlt);
  }

  void add_linkage_table(const ElfSection& section, std::uint32_t kind) {
    if (!section.present() ||
        !input_.layout.is_code(section.address, section.address + section.size) ||
        described(section)) {
      return;
    }
    index_.fdes.push_back({static_cast<std::uint32_t>(section.address - base_),
                           static_cast<std::uint32_t>(section.size), kind, 0, 0});
    ++stats_.synthesized;
  }

  // From which byte of an entry on its index has been pushed; nullopt: a table that pushes nothing.
  std::optional<std::uint32_t> plt_threshold() const {
    const auto& bytes = input_.plt_entry;
    if (bytes[0] == 0xff && bytes[1] == 0x25 && bytes[6] == 0x68) return 11;  // jmp *GOT; push
    if (bytes[0] == 0xf3 && bytes[1] == 0x0f && bytes[4] == 0x68) return 9;   // endbr64; push
    if (bytes[0] == 0x68) return 5;                                           // push; jmp
    return std::nullopt;
  }

  Result<void> run_fdes() {
    const std::size_t count = index_.fdes.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (i % 1024 == 0 && options_.cancelled != nullptr && options_.cancelled->load()) {
        return error("cancelled");
      }
      if (i % 1024 == 0 && options_.budget != nullptr && !options_.budget->in_time()) {
        return error("takes too long to make a table of");
      }
      const CfiFde& fde = index_.fdes[i];
      if (i > 0 && fde.begin == index_.fdes[i - 1].begin) {
        ++count_of(index_.skipped, CfiSkip::kOverlap);
        continue;
      }
      const std::uint32_t end = end_of(i);
      if (rows_.size() + kRowsBehindProgram + kRowsOfLinkageTable >= options_.max_rows) {
        return cut(fde.begin);
      }
      ++stats_.fdes;
      run_fde(fde, end);
      if (full_at_) return cut(*full_at_);
      if (!only_padding(i, end)) rows_.add(end, DP_CFA_NONE);
    }
    return {};
  }

  // Where FDEs overlap, the earlier one ends where the later one begins.
  std::uint32_t end_of(std::size_t number) const {
    const CfiFde& fde = index_.fdes[number];
    const std::uint32_t end = fde.begin + fde.size;
    for (std::size_t next = number + 1; next < index_.fdes.size(); ++next) {
      const std::uint32_t begin = index_.fdes[next].begin;
      if (begin != fde.begin) return std::min(end, begin);
    }
    return end;
  }

  // Whether the next function begins right behind `end` but for its alignment. No instruction is run
  // there and no call returns to it; a row for each would make libtorch_cpu.so's table 13 % larger.
  bool only_padding(std::size_t number, std::uint32_t end) const {
    if (number + 1 >= index_.fdes.size()) return false;
    const std::uint32_t next = index_.fdes[number + 1].begin;
    return next >= end && next - end < kAlignment && (base_ + next) % kAlignment == 0;
  }

  Result<void> cut(std::uint32_t from) {
    rows_.add(from, unsupported_rule(DP_UNWIND_TABLE_LIMIT));
    rows_.add(static_cast<std::uint32_t>(input_.layout.code_end() - base_), DP_CFA_NONE);
    return {};
  }

  void run_fde(const CfiFde& fde, std::uint32_t end) {
    if (fde.cie == kLazyPlt) return run_lazy_plt(fde);
    if (fde.cie == kDirectPlt) return rows_.add(fde.begin, stack_rule(8));
    const CfiCie& cie = index_.cies[fde.cie];
    if (!cie.usable) return rows_.add(fde.begin, unsupported_rule(DP_UNWIND_BAD_CIE));
    CfiProgram program(input_.sections[cie.section], cie, base_);
    InitialRow& initial = initial_[fde.cie];
    if (!initial.made) {
      initial.made = true;
      initial.outcome = program.run_cie(initial.row);
    }
    signal_frame_ = cie.signal_frame;
    CfiOutcome outcome = initial.outcome;
    std::uint32_t stopped_at = fde.begin;
    if (outcome == CfiOutcome::kOk) {
      outcome = program.run_fde(fde, end, initial.row, *this);
      stopped_at = program.stopped_at();
    }
    if (outcome == CfiOutcome::kOk || full_at_) return;
    rows_.add(std::min(stopped_at, end - 1),
              unsupported_rule(outcome == CfiOutcome::kLimit ? DP_UNWIND_PROGRAM_LIMIT
                                                             : DP_UNWIND_BAD_PROGRAM));
  }

  void run_lazy_plt(const CfiFde& fde) {
    rows_.add(fde.begin, stack_rule(16));
    rows_.add(fde.begin + kPltHeaderPushed, stack_rule(24));
    rows_.add(fde.begin + kPltHeader, plt_rule(plt_threshold().value_or(0)));
  }

  void row(std::uint32_t begin, const CfiRow& row) override {
    if (rows_.size() + kRowsBehindProgram >= options_.max_rows) {
      if (!full_at_) full_at_ = begin;
      return;
    }
    rows_.add(begin, rule_of(row, signal_frame_));
  }

  Result<UnwindTable> finish() {
    UnwindTable table;
    table.build_id = input_.layout.build_id;
    table.base = base_;
    for (const ElfSegment& segment : input_.layout.segments) {
      if (segment.executable) table.segments.push_back(segment);
    }
    table.rows = rows_.take();
    if (table.rows.empty()) return error("has no unwind information");
    cover_entry(table.rows);
    stats_.cies = static_cast<std::uint32_t>(index_.cies.size());
    stats_.skipped = index_.skipped;
    for (const dp_unwind_row& row : table.rows) count_row(row.rule);
    table.stats = stats_;
    return table;
  }

  // The first instructions of the dynamic loader are assembly that says nothing of itself, and a
  // process spends its first milliseconds above them. Nothing called them.
  void cover_entry(std::vector<dp_unwind_row>& rows) const {
    constexpr std::uint32_t kEntryBytes = 64;  // 61 in glibc 2.36
    const std::uint64_t entry = input_.layout.entry;
    if (entry < base_ || entry - base_ > UINT32_MAX - kEntryBytes ||
        !input_.layout.is_code(entry, entry + 1) || rows.size() + 2 > options_.max_rows)
      return;
    const auto pc = static_cast<std::uint32_t>(entry - base_);
    auto next = std::upper_bound(
        rows.begin(), rows.end(), pc,
        [](std::uint32_t wanted, const dp_unwind_row& row) { return wanted < row.pc; });
    if (next == rows.begin() || next == rows.end()) return;
    if (std::prev(next)->rule != DP_CFA_NONE || next->rule == DP_CFA_OUTERMOST) return;
    if (next->pc - pc > kEntryBytes) next = rows.insert(next, {pc + kEntryBytes, DP_CFA_NONE});
    if (std::prev(next)->pc == pc) next = rows.erase(std::prev(next));
    if (next == rows.begin() || std::prev(next)->rule != DP_CFA_OUTERMOST)
      rows.insert(next, {pc, DP_CFA_OUTERMOST});
  }

  void count_row(std::uint32_t rule) {
    const std::uint32_t kind = dp_unwind_kind(rule);
    if (kind == DP_CFA_UNSUPPORTED) {
      ++stats_.unsupported[dp_unwind_argument(rule)];
    } else if (kind != DP_CFA_OUTERMOST && dp_unwind_rbp(rule) == DP_RBP_LOST) {
      ++stats_.rbp_lost;
    }
  }

  const UnwindInput& input_;
  const UnwindOptions& options_;
  std::uint64_t base_;
  CfiIndex index_;
  std::vector<InitialRow> initial_;  // by CIE
  RowList rows_;
  UnwindStats stats_;
  bool signal_frame_ = false;
  std::optional<std::uint32_t> full_at_;
};

}  // namespace

std::uint32_t UnwindStats::unsupported_rows() const {
  return std::accumulate(unsupported.begin(), unsupported.end(), std::uint32_t{0});
}

std::uint32_t UnwindTable::rule_at(std::uint64_t address) const {
  if (address < base || address - base > UINT32_MAX) return DP_CFA_NONE;
  const auto pc = static_cast<std::uint32_t>(address - base);
  const auto after = std::upper_bound(
      rows.begin(), rows.end(), pc,
      [](std::uint32_t wanted, const dp_unwind_row& row) { return wanted < row.pc; });
  return after == rows.begin() ? std::uint32_t{DP_CFA_NONE} : std::prev(after)->rule;
}

Result<UnwindTable> build_unwind_table(const UnwindInput& input, const UnwindOptions& options) {
  return TableBuilder(input, options).build();
}

Result<UnwindTable> build_unwind_table(const ByteSource& file, const UnwindOptions& options) {
  ASSIGN_OR_RETURN(const UnwindInput input, read_unwind_input(file, options));
  return build_unwind_table(input, options);
}

}  // namespace dynprof
