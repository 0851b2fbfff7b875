#include "symbolizer/python/line_table.h"

#include <algorithm>
#include <limits>

#include "symbolizer/python/python_version.h"

namespace dynprof {
namespace {

// One entry of a table, in bytes of code (3.10) or in units scaled to bytes (3.11+).
struct Entry {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::int32_t line = 0;
};

// The running line. It is kept apart from an entry's line, because an entry without a line does
// not move it: later deltas count from the last line there was. At most 2^20 deltas of at most 32
// bits are added, so 64 bits never overflow.
class RunningLine {
 public:
  explicit RunningLine(std::int32_t first_line) : line_(first_line) {}
  void add(std::int64_t delta) { line_ += delta; }
  std::int32_t value() const {
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    return line_ > 0 && line_ <= kMax ? static_cast<std::int32_t>(line_) : 0;
  }

 private:
  std::int64_t line_;
};

// 3.10: pairs of an unsigned length in bytes of code and a signed line delta; delta -128 says that
// the entry has no line. Lengths of 0 only carry a delta that does not fit in one pair.
class PairCursor {
 public:
  PairCursor(std::string_view table, std::int32_t first_line) : table_(table), line_(first_line) {}

  bool next(Entry& entry) {
    if (table_.size() - at_ < 2) return false;
    const auto length = static_cast<std::uint8_t>(table_[at_]);
    const auto delta = static_cast<std::int8_t>(table_[at_ + 1]);
    at_ += 2;
    const bool no_line = delta == -128;
    if (!no_line) line_.add(delta);
    entry.begin = end_;
    end_ += length;
    entry.end = end_;
    entry.line = no_line ? 0 : line_.value();
    return true;
  }

 private:
  std::string_view table_;
  std::size_t at_ = 0;
  std::uint32_t end_ = 0;
  RunningLine line_;
};

// 3.11+: entries that begin with a byte 1cccclll (code c, l + 1 units) and go on with bytes whose
// high bit is clear. Only the line is decoded; the columns behind it are skipped up to the next
// byte with the high bit, as CPython's own walk over lines does.
class LocationCursor {
 public:
  LocationCursor(std::string_view table, std::int32_t first_line)
      : table_(table), line_(first_line) {}

  bool next(Entry& entry) {
    if (at_ >= table_.size()) return false;
    const std::uint8_t head = byte();
    if ((head & 0x80) == 0) return false;
    const int code = (head >> 3) & 15;
    switch (code) {
      case kNoLine:
        break;
      case kLong:
      case kNoColumns: {
        std::int64_t delta = 0;
        if (!signed_varint(delta)) return false;
        line_.add(delta);
        break;
      }
      case kOneLine1:
      case kOneLine2:
        line_.add(code - kOneLine0);
        break;
      default:  // 0-9 and kOneLine0: the line of the entry before
        break;
    }
    while (at_ < table_.size() && (table_[at_] & 0x80) == 0) ++at_;
    entry.begin = end_;
    end_ += kUnitBytes * ((head & 7u) + 1);
    entry.end = end_;
    entry.line = code == kNoLine ? 0 : line_.value();
    return true;
  }

 private:
  // Include/internal/pycore_code.h, enum _PyCodeLocationInfoKind.
  static constexpr int kOneLine0 = 10;
  static constexpr int kOneLine1 = 11;
  static constexpr int kOneLine2 = 12;
  static constexpr int kNoColumns = 13;
  static constexpr int kLong = 14;
  static constexpr int kNoLine = 15;
  static constexpr std::uint32_t kUnitBytes = 2;
  // CPython's value is a 32-bit int: 6 digits of 6 bits.
  static constexpr int kMaxDigits = 6;

  std::uint8_t byte() { return static_cast<std::uint8_t>(table_[at_++]); }

  // 6 bits a byte, least significant first, bit 6 set where another byte follows; bit 0 of the
  // whole is the sign.
  bool signed_varint(std::int64_t& value) {
    std::uint64_t digits = 0;
    for (int i = 0; i < kMaxDigits; ++i) {
      if (at_ >= table_.size()) return false;
      const std::uint8_t digit = byte();
      if ((digit & 0x80) != 0) return false;
      digits |= static_cast<std::uint64_t>(digit & 63) << (6 * i);
      if ((digit & 64) != 0) continue;
      if (digits > std::numeric_limits<std::uint32_t>::max()) return false;
      const auto magnitude = static_cast<std::int64_t>(digits >> 1);
      value = (digits & 1) != 0 ? -magnitude : magnitude;
      return true;
    }
    return false;
  }

  std::string_view table_;
  std::size_t at_ = 0;
  std::uint32_t end_ = 0;
  RunningLine line_;
};

// Calls visit(begin unit, end unit, line) for every entry that holds a unit's first byte, until it
// returns false.
template <class Cursor, class Visit>
void walk(Cursor cursor, Visit visit) {
  Entry entry;
  while (cursor.next(entry)) {
    const std::uint32_t begin = (entry.begin + 1) / 2;
    const std::uint32_t end = (entry.end + 1) / 2;
    if (begin < end && !visit(begin, end, entry.line)) return;
  }
}

template <class Visit>
void walk_table(std::uint16_t python, std::string_view table, std::int32_t first_line,
                Visit visit) {
  table = table.substr(0, kMaxLineTableBytes);
  if (python >= python_version(3, 11)) {
    walk(LocationCursor(table, first_line), visit);
  } else if (python == python_version(3, 10)) {
    walk(PairCursor(table, first_line), visit);
  }
}

}  // namespace

std::vector<LineRange> decode_line_table(std::uint16_t python, std::string_view table,
                                         std::int32_t first_line) {
  std::vector<LineRange> ranges;
  walk_table(python, table, first_line,
             [&](std::uint32_t begin, std::uint32_t end, std::int32_t line) {
               if (!ranges.empty() && ranges.back().line == line) {
                 ranges.back().end = end;
               } else {
                 ranges.push_back({begin, end, line});
               }
               return true;
             });
  return ranges;
}

std::int32_t line_of_unit(std::uint16_t python, std::string_view table, std::int32_t first_line,
                          std::int32_t unit) {
  if (unit < 0) return std::max(first_line, 0);
  const auto wanted = static_cast<std::uint32_t>(unit);
  std::int32_t found = 0;
  walk_table(python, table, first_line, [&](std::uint32_t, std::uint32_t end, std::int32_t line) {
    if (wanted >= end) return true;
    found = line;
    return false;
  });
  return found;
}

std::int32_t line_of_unit(const std::vector<LineRange>& ranges, std::int32_t first_line,
                          std::int32_t unit) {
  if (unit < 0) return std::max(first_line, 0);
  const auto wanted = static_cast<std::uint32_t>(unit);
  const auto after = std::partition_point(
      ranges.begin(), ranges.end(), [&](const LineRange& range) { return range.end <= wanted; });
  return after == ranges.end() ? 0 : after->line;
}

}  // namespace dynprof
