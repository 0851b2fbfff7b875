// Compares our line decoder with what tests/compat/line_oracle.py wrote, unit by unit:
//   python3.X line_oracle.py sources DIR | line_dump [--self-check]
// Prints one line of key=value counts; exit status 0: no mismatch, 1: mismatches, 2: bad input.
// --self-check falsifies one in 1,000 of our answers, to prove that a wrong decoder is noticed.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/python/line_table.h"

namespace dynprof {
namespace {

constexpr std::uint32_t kMagic = 0x4e4c5044;
constexpr std::uint32_t kMaxCount = 1u << 26;
// Units of one code object that are also asked one by one; every one up to this many.
constexpr std::size_t kSingleUnits = 4000;
constexpr int kShownMismatches = 10;

struct Run {
  std::uint32_t units = 0;
  std::int32_t line = 0;  // -1: None
};

struct Point {
  std::int32_t unit = 0;
  std::int32_t line = 0;
};

// How our decoder spells what CPython says: no line and the line 0 of a module's first instruction
// are both 0.
std::int32_t our_line(std::int32_t line) { return line < 0 ? 0 : line; }

struct Record {
  std::uint16_t python = 0;
  std::int32_t first_line = 0;
  std::string name;
  std::string table;
  std::vector<Run> runs;
  std::vector<Point> points;
};

template <class T>
bool read(T& value) {
  return std::fread(&value, sizeof value, 1, stdin) == 1;
}

bool read_bytes(std::string& bytes) {
  std::uint32_t size = 0;
  if (!read(size) || size > kMaxCount) return false;
  bytes.resize(size);
  return std::fread(bytes.data(), 1, size, stdin) == size;
}

template <class T>
bool read_list(std::vector<T>& list) {
  std::uint32_t count = 0;
  if (!read(count) || count > kMaxCount) return false;
  list.resize(count);
  return std::fread(list.data(), sizeof(T), count, stdin) == count;
}

bool read_record(Record& record) {
  return read(record.python) && read(record.first_line) && read_bytes(record.name) &&
         read_bytes(record.table) && read_list(record.runs) && read_list(record.points);
}

struct Counts {
  std::uint16_t python = 0;
  std::uint64_t code_objects = 0;
  std::uint64_t units = 0;
  std::uint64_t single_units = 0;
  std::uint64_t points = 0;
  std::uint64_t no_line = 0;
  std::uint64_t mismatches = 0;
  std::size_t largest_table = 0;
  // Units that decoders with two well-known mistakes would have got wrong.
  std::uint64_t lost_line = 0;
  std::uint64_t entry_before = 0;
};

// What a decoder gives that lets an entry without a line overwrite the running line by -1: every
// line behind it is off by the same amount. Derived from the right lines.
std::uint64_t lost_line_errors(const Record& record) {
  std::uint64_t wrong = 0;
  std::int64_t before = record.first_line;
  std::int64_t error = 0;
  for (const Run& run : record.runs) {
    if (run.line < 0) {
      error = -1 - before;
      continue;
    }
    before = run.line;
    if (error != 0) wrong += run.units;
  }
  return wrong;
}

// What a decoder gives that takes the entry before for the first unit of an entry: wrong wherever
// the line changes.
std::uint64_t entry_before_errors(const Record& record) {
  return record.runs.empty() ? 0 : record.runs.size() - 1;
}

class Comparison {
 public:
  Comparison(Counts& counts, bool self_check) : counts_(counts), self_check_(self_check) {}

  void compare(const Record& record) {
    const std::vector<LineRange> ranges =
        decode_line_table(record.python, record.table, record.first_line);
    std::vector<std::int32_t> expected;
    for (const Run& run : record.runs) {
      expected.insert(expected.end(), run.units, our_line(run.line));
    }

    // The decoded list, walked by itself: no look-up function is involved.
    std::size_t at = 0;
    for (std::uint32_t unit = 0; unit < expected.size(); ++unit) {
      while (at < ranges.size() && ranges[at].end <= unit) ++at;
      const bool inside = at < ranges.size() && ranges[at].begin <= unit;
      check(record, "decoded", unit, expected[unit], inside ? ranges[at].line : 0);
      counts_.no_line += expected[unit] == 0 ? 1 : 0;
    }
    const std::size_t step = expected.size() / kSingleUnits + 1;
    for (std::size_t i = 0; i < expected.size(); i += step) {
      const auto unit = static_cast<std::int32_t>(i);
      compare_unit(record, ranges, unit, expected[i]);
      ++counts_.single_units;
    }
    compare_unit(record, ranges, -1, record.first_line);
    for (const Point& point : record.points) {
      compare_unit(record, ranges, point.unit, our_line(point.line));
    }

    ++counts_.code_objects;
    counts_.units += expected.size();
    counts_.points += record.points.size();
    counts_.largest_table = std::max(counts_.largest_table, record.table.size());
    counts_.lost_line += lost_line_errors(record);
    counts_.entry_before += entry_before_errors(record);
  }

 private:
  void compare_unit(const Record& record, const std::vector<LineRange>& ranges, std::int32_t unit,
                    std::int32_t expected) {
    check(record, "by table", unit, expected,
          line_of_unit(record.python, record.table, record.first_line, unit));
    check(record, "by ranges", unit, expected, line_of_unit(ranges, record.first_line, unit));
  }

  void check(const Record& record, const char* how, std::int64_t unit, std::int32_t expected,
             std::int32_t line) {
    if (self_check_ && ++answers_ % 1000 == 0) ++line;
    if (line == expected) return;
    if (++counts_.mismatches <= kShownMismatches) {
      fmt::print(stderr, "{} unit {} {}: line {}, CPython says {}\n", record.name, unit, how, line,
                 expected);
    }
  }

  Counts& counts_;
  bool self_check_;
  std::uint64_t answers_ = 0;
};

int run(bool self_check) {
  Counts counts;
  Comparison comparison(counts, self_check);
  std::uint32_t magic = 0;
  while (read(magic)) {
    Record record;
    if (magic != kMagic || !read_record(record)) {
      fmt::print(stderr, "line_dump: damaged input after {} code objects\n", counts.code_objects);
      return 2;
    }
    counts.python = record.python;
    comparison.compare(record);
  }
  fmt::print(
      "python={}.{} code_objects={} units={} single_units={} points={} no_line={} "
      "largest_table={} mismatches={} lost_line={} entry_before={}\n",
      counts.python >> 8, counts.python & 0xff, counts.code_objects, counts.units,
      counts.single_units, counts.points, counts.no_line, counts.largest_table, counts.mismatches,
      counts.lost_line, counts.entry_before);
  return counts.mismatches == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  const bool self_check = argc == 2 && std::string_view(argv[1]) == "--self-check";
  if (argc > 1 && !self_check) {
    fmt::print(stderr, "usage: line_oracle.py ... | line_dump [--self-check]\n");
    return 2;
  }
  return dynprof::run(self_check);
}
