// CPython's marshal format, as far as pstats and code objects need it: version 0 to 2 tags without
// references, which every CPython reads. A slice is version 5 (3.14).
//
// More than 15 public members: one for each type of the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

  // The rest is for code objects: their texts are kept as they are, surrogates included.
  void raw_text(std::string_view text) { sized('u', text); }
  void byte_string(std::string_view bytes) { sized('s', bytes); }
  void none() { out_ += 'N'; }
  void ellipsis() { out_ += '.'; }
  void boolean(bool value) { out_ += value ? 'T' : 'F'; }
  void complex(double real, double imaginary);
  // Digits of 15 bits, the least significant first.
  void long_integer(bool negative, const std::vector<std::uint16_t>& digits);
  void begin_frozenset(std::uint32_t size);
  void begin_slice() { out_ += ':'; }  // followed by its three parts
  // A code object's fields follow; its numbers have no tag.
  void begin_code() { out_ += 'c'; }
  void number(std::int32_t value) { little_endian(static_cast<std::uint32_t>(value), 4); }

  const std::string& bytes() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void little_endian(std::uint64_t value, int bytes);
  void sized(char tag, std::string_view bytes);
  std::string out_;
};

}  // namespace dynprof
