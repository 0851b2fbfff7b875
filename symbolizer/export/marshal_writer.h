// CPython's marshal format, as far as pstats needs it: version 0 tags without references, which
// every CPython reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace dynprof {

class MarshalWriter {
 public:
  // A dict is its keys and values in turn, then end_dict().
  void begin_dict() { out_ += '{'; }
  void end_dict() { out_ += '0'; }
  // Followed by its `size` items.
  void begin_tuple(std::uint32_t size);
  void integer(std::int64_t value);
  void real(double value);
  // What is not UTF-8 is written as text, "\xff" or "\udc80". marshal could carry surrogates, but
  // gprof2dot dies of one when it prints it.
  void text(std::string_view text);

  const std::string& bytes() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void little_endian(std::uint64_t value, int bytes);
  std::string out_;
};

}  // namespace dynprof
