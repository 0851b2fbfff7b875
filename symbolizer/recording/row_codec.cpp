#include "symbolizer/recording/row_codec.h"

#include <concepts>
#include <limits>

#include "symbolizer/base/byte_reader.h"
#include "symbolizer/recording/row_formats.h"

namespace dynprof::recording {
namespace {

// `rows` of one row's own, after those of the row before: visit(item, item before).
template <class Item, class Visit>
void visit_items(std::span<Item> rows, std::span<const std::remove_const_t<Item>> before,
                 const Visit& visit) {
  const std::remove_const_t<Item> none{};
  const auto* last = before.empty() ? &none : &before.back();
  for (Item& item : rows) {
    visit(item, *last);
    last = &item;
  }
}

class RowEncoder {
 public:
  static constexpr bool kDecodes = false;
  explicit RowEncoder(ByteWriter& out) : out_(out) {}

  void varint(std::uint64_t x) { out_.varint(x); }
  void signed_varint(std::int64_t x) { out_.signed_varint(x); }
  void flag(bool x) { out_.varint(x ? 1 : 0); }
  void flags(std::uint8_t x, int) { out_.u8(x); }
  template <class T, class E>
  void enumeration(T x, E, E) {
    out_.u8(static_cast<std::uint8_t>(x));
  }
  void difference(std::uint64_t x, std::uint64_t before) { out_.difference(x, before); }
  void signed_difference(std::int32_t x, std::int32_t before) {
    out_.signed_varint(std::int64_t{x} - before);
  }
  void ref(Ref, std::uint32_t x) { out_.varint(x); }
  void ref(Ref, std::uint32_t x, std::uint32_t before) { out_.difference(x, before); }
  template <class Item, class Visit>
  void items(const std::vector<Item>& rows, std::size_t, std::size_t,
             const std::vector<Item>& before, const Visit& visit) {
    out_.varint(rows.size());
    visit_items(std::span(rows), std::span(before), visit);
  }
  void require(bool) {}

 private:
  ByteWriter& out_;
};

class RowDecoder {
 public:
  static constexpr bool kDecodes = true;
  explicit RowDecoder(ByteReader& in) : in_(in) {}

  template <std::unsigned_integral T>
  void varint(T& x) {
    x = static_cast<T>(in_.varint_up_to(std::numeric_limits<T>::max()));
  }
  void signed_varint(std::int32_t& x) { x = in_.signed_varint32(); }
  void flag(bool& x) { x = in_.varint() != 0; }
  void flags(std::uint8_t& x, int known) {
    x = in_.u8();
    require((x & ~known) == 0);
  }
  template <class T, class E>
  void enumeration(T& x, E first, E last) {
    const std::uint8_t value = in_.u8();
    const bool good =
        value >= static_cast<std::uint8_t>(first) && value <= static_cast<std::uint8_t>(last);
    require(good);
    x = good ? static_cast<T>(value) : static_cast<T>(first);
  }
  // What does not fit fails; modulo 2^64.
  template <std::unsigned_integral T>
  void difference(T& x, T before) {
    const std::uint64_t value = in_.plus_difference(before);
    require(value <= std::numeric_limits<T>::max());
    x = static_cast<T>(value);
  }
  void signed_difference(std::int32_t& x, std::int32_t before) {
    // Wraps as the writer's subtraction never does: only a damaged file has such a row.
    const auto sum = static_cast<std::uint64_t>(in_.signed_varint()) +
                     static_cast<std::uint64_t>(std::int64_t{before});
    const auto value = static_cast<std::int64_t>(sum);
    require(value >= INT32_MIN && value <= INT32_MAX);
    x = static_cast<std::int32_t>(value);
  }
  void ref(Ref, std::uint32_t& x) { varint(x); }
  void ref(Ref, std::uint32_t& x, std::uint32_t before) { difference(x, before); }
  template <class Item, class Visit>
  void items(std::vector<Item>& rows, std::size_t least, std::size_t most,
             const std::vector<Item>& before, const Visit& visit) {
    const std::uint64_t count = in_.varint_up_to(most);
    require(count >= least);
    Item last = before.empty() ? Item{} : before.back();
    for (std::uint64_t i = 0; i < count && in_.ok(); ++i) {
      Item& item = rows.emplace_back();
      visit(item, last);
      last = item;
    }
  }
  void require(bool truth) {
    if (!truth) in_.fail();
  }

 private:
  ByteReader& in_;
};

template <class Row>
void encode_rows(std::span<const Row> rows, ByteWriter& out) {
  RowEncoder encoder(out);
  RowFormat<Row> format;
  const Row none{};
  const Row* before = &none;
  for (const Row& row : rows) {
    format.visit(encoder, row, *before);
    before = &row;
  }
}

template <class Row>
bool decode_rows(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<Row>& out) {
  ByteReader in(raw);
  RowDecoder decoder(in);
  RowFormat<Row> format;
  const Row none{};
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    out.emplace_back();
    format.visit(decoder, out.back(), i == 0 ? none : out[out.size() - 2]);
  }
  return in.done();
}

}  // namespace

#define DYNPROF_CODEC(kind, number, name, Row, ...)                                            \
  void encode(std::span<const Row> rows, ByteWriter& out) { encode_rows(rows, out); }          \
  bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<Row>& out) { \
    return decode_rows(raw, count, out);                                                       \
  }
DYNPROF_LISTS(DYNPROF_CODEC)
#undef DYNPROF_CODEC

}  // namespace dynprof::recording
