// Visitors (row_formats.h) for the ids that a row refers to.
#pragma once

#include <type_traits>
#include <utility>

#include "symbolizer/recording/row_formats.h"

namespace dynprof::recording {

// Does nothing; visitors derive from it and hide what they are about.
struct RowVisitor {
  static constexpr bool kDecodes = false;
  template <class T>
  void varint(T&&) {}
  template <class T>
  void signed_varint(T&&) {}
  void flag(bool) {}
  void flags(std::uint8_t, int) {}
  template <class T, class E>
  void enumeration(T&&, E, E) {}
  template <class T>
  void difference(T&&, std::uint64_t) {}
  void signed_difference(std::int32_t, std::int32_t) {}
  void require(bool) {}
};

// Calls on_ref(Ref, id) for each id of a row; the id may be changed where the row may.
template <class OnRef>
class RefVisitor : public RowVisitor {
 public:
  explicit RefVisitor(OnRef on_ref) : on_ref_(std::move(on_ref)) {}
  template <class Id>
  void ref(Ref what, Id& id, std::uint32_t = 0) {
    on_ref_(what, id);
  }
  template <class Items, class Visit>
  void items(Items& rows, std::size_t, std::size_t, const std::remove_const_t<Items>&,
             const Visit& visit) {
    const typename Items::value_type none{};
    for (auto& item : rows) visit(item, none);
  }

 private:
  OnRef on_ref_;
};

// The same for all rows of a list.
template <class Row, class OnRef>
void visit_refs(std::vector<Row>& rows, const OnRef& on_ref) {
  RefVisitor visitor(on_ref);
  RowFormat<Row> format;
  const Row none{};
  for (Row& row : rows) format.visit(visitor, row, none);
}
template <class Row, class OnRef>
void visit_refs(const std::vector<Row>& rows, const OnRef& on_ref) {
  RefVisitor visitor(on_ref);
  RowFormat<Row> format;
  const Row none{};
  for (const Row& row : rows) format.visit(visitor, row, none);
}

}  // namespace dynprof::recording
