#include "user/symbols/dwarf_places.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "symbolizer/recording/model.h"
#include "symbolizer/symbols/demangle.h"
#include "user/symbols/place_wire.h"

namespace dynprof {
namespace {

constexpr int kMaxNesting = 256;  // of scopes; compilers stay below 100

using Wanted = std::vector<std::size_t>;  // indexes of addresses, ascending

// Functions around an address, outermost first: one that is not inlined, then those that are.
using Scopes = std::vector<Dwarf_Die>;

std::string name_of(Dwarf_Die& function) {
  for (unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    Dwarf_Attribute attribute;
    if (dwarf_attr_integrate(&function, name, &attribute) == nullptr) continue;
    if (const char* mangled = dwarf_formstring(&attribute)) return demangle(mangled);
  }
  const char* plain = dwarf_diename(&function);
  return plain ? std::string(plain).substr(0, kMaxSymbolBytes) : std::string();
}

std::uint32_t number(Dwarf_Die& die, unsigned name, bool inherited) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  Dwarf_Attribute* found =
      inherited ? dwarf_attr_integrate(&die, name, &attribute) : dwarf_attr(&die, name, &attribute);
  if (found == nullptr || dwarf_formudata(found, &value) != 0 || value > INT32_MAX) return 0;
  return static_cast<std::uint32_t>(value);
}

// Those whose addresses are in [begin, end).
std::pair<Wanted::const_iterator, Wanted::const_iterator> within(
    const Wanted& wanted, std::span<const std::uint64_t> addresses, Dwarf_Addr begin,
    Dwarf_Addr end) {
  const auto is_before = [&](std::size_t index, Dwarf_Addr value) {
    return addresses[index] < value;
  };
  const auto first = std::lower_bound(wanted.begin(), wanted.end(), begin, is_before);
  return {first, end > begin ? std::lower_bound(first, wanted.end(), end, is_before) : first};
}

// One compilation unit and the wanted addresses in it.
class Unit {
 public:
  Unit(Dwarf_Die unit, std::span<const std::uint64_t> addresses, const Wanted& wanted)
      : unit_(unit), addresses_(addresses), wanted_(wanted) {
    if (dwarf_getsrcfiles(&unit_, &files_, &file_count_) != 0) files_ = nullptr;
    Dwarf_Attribute attribute;
    if (dwarf_attr(&unit_, DW_AT_comp_dir, &attribute) != nullptr)
      if (const char* folder = dwarf_formstring(&attribute))
        folder_ = std::string(folder).substr(0, kMaxPlaceFileBytes);
  }

  void read(const TakePlaces& take) {
    Scopes none;
    walk(unit_, wanted_, none, 0);
    Wanted left;
    for (std::size_t index : wanted_)
      if (!scopes_.contains(index)) left.push_back(index);
    if (!left.empty()) {
      everywhere_ = true;
      walk(unit_, left, none, 0);
    }
    for (std::size_t index : wanted_) {
      const PlaceChain chain = chain_at(index);
      if (!chain.empty()) take(index, chain);
    }
  }
  bool damaged() const { return damaged_; }

 private:
  Wanted inside(Dwarf_Die& die, const Wanted& wanted) {
    Wanted found;
    ptrdiff_t offset = 0;
    Dwarf_Addr base = 0, begin = 0, end = 0;
    while ((offset = dwarf_ranges(&die, offset, &base, &begin, &end)) > 0) {
      const auto [first, last] = within(wanted, addresses_, begin, end);
      found.insert(found.end(), first, last);
    }
    if (offset < 0) damaged_ = true;
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  // Finds the scopes of `wanted` among the children of `parent`, whose own are `around`.
  void walk(Dwarf_Die& parent, const Wanted& wanted, Scopes& around, int nesting) {
    Dwarf_Die child;
    int found = dwarf_child(&parent, &child);
    while (found == 0) {
      step(child, wanted, around, nesting);
      // A sibling is always further on; anything else is a loop.
      Dwarf_Die next;
      found = dwarf_siblingof(&child, &next);
      if (found == 0 && dwarf_dieoffset(&next) <= dwarf_dieoffset(&child)) found = -1;
      child = next;
    }
    if (found < 0) damaged_ = true;
  }

  void step(Dwarf_Die& die, const Wanted& wanted, Scopes& around, int nesting) {
    if (nesting == kMaxNesting) return;
    switch (dwarf_tag(&die)) {
      case DW_TAG_subprogram: {
        const Wanted here = inside(die, wanted);
        Scopes own{die};
        if (!here.empty()) enter(die, here, own, nesting);
        return walk_rest(die, wanted, here, nesting);
      }
      case DW_TAG_inlined_subroutine: {
        const Wanted here = inside(die, wanted);
        around.push_back(die);
        if (!here.empty() && around.size() > 1) enter(die, here, around, nesting);
        around.pop_back();
        return walk_rest(die, wanted, here, nesting);
      }
      case DW_TAG_lexical_block:
      case DW_TAG_try_block:
      case DW_TAG_catch_block: {
        const Wanted here = inside(die, wanted);
        if (!here.empty()) walk(die, here, around, nesting + 1);
        return walk_rest(die, wanted, here, nesting);
      }
      case DW_TAG_namespace:
      case DW_TAG_class_type:
      case DW_TAG_structure_type:
      case DW_TAG_union_type:
      case DW_TAG_module:
        return walk(die, wanted, around, nesting + 1);
      default:
        return;
    }
  }

  // Functions of classes that are local to a function (lambdas) stand inside it, wherever their
  // code is.
  void walk_rest(Dwarf_Die& die, const Wanted& wanted, const Wanted& here, int nesting) {
    if (!everywhere_ || here.size() == wanted.size()) return;
    Wanted rest;
    std::set_difference(wanted.begin(), wanted.end(), here.begin(), here.end(),
                        std::back_inserter(rest));
    Scopes none;
    walk(die, rest, none, nesting + 1);
  }

  void enter(Dwarf_Die& die, const Wanted& here, Scopes& around, int nesting) {
    for (std::size_t index : here) scopes_[index] = around;
    walk(die, here, around, nesting + 1);
  }

  std::string file(std::uint32_t number_of_file) const {
    if (files_ == nullptr || number_of_file >= file_count_) return {};
    const char* name = dwarf_filesrc(files_, number_of_file, nullptr, nullptr);
    return name ? whole(name) : std::string();
  }

  // Names are relative to where the compiler ran.
  std::string whole(const char* name) const {
    std::string path(name);
    if (!path.empty() && path[0] != '/' && !folder_.empty()) path = folder_ + '/' + path;
    return path.substr(0, kMaxPlaceFileBytes);
  }

  void set_source(std::uint64_t address, NamedPlace& place) {
    Dwarf_Line* line = dwarf_getsrc_die(&unit_, address);
    int row = 0;
    if (line == nullptr) return;
    if (dwarf_lineno(line, &row) == 0 && row > 0) place.line = static_cast<std::uint32_t>(row);
    if (const char* name = dwarf_linesrc(line, nullptr, nullptr)) place.file = whole(name);
  }

  PlaceChain chain_at(std::size_t index) {
    PlaceChain chain;
    Scopes& scopes = scopes_[index];
    // Of each, where it is left for the next one in; the innermost where the address itself is.
    const std::size_t shown = std::min(scopes.size(), kMaxInlined + 1);
    for (std::size_t i = 0; i < shown; ++i) {
      NamedPlace& place = chain.emplace_back();
      place.function = name_of(scopes[i]);
      place.declared = number(scopes[i], DW_AT_decl_line, true);
      if (i + 1 < scopes.size()) {
        place.file = file(number(scopes[i + 1], DW_AT_call_file, false));
        place.line = number(scopes[i + 1], DW_AT_call_line, false);
      } else {
        set_source(addresses_[index], place);
      }
    }
    if (chain.empty()) {
      NamedPlace place;
      set_source(addresses_[index], place);
      if (!place.file.empty()) chain.push_back(std::move(place));
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  Dwarf_Die unit_;
  std::span<const std::uint64_t> addresses_;
  const Wanted& wanted_;
  Dwarf_Files* files_ = nullptr;
  std::size_t file_count_ = 0;
  std::string folder_;  // where the compiler ran
  std::map<std::size_t, Scopes> scopes_;
  bool everywhere_ = false;
  bool damaged_ = false;
};

class Lookup {
 public:
  Lookup(Dwarf* dwarf, std::span<const std::uint64_t> addresses)
      : dwarf_(dwarf), addresses_(addresses) {}

  // False: a part of it could not be read.
  bool run(const TakePlaces& take) {
    find_by_index();
    const bool whole = find_by_units();
    bool damaged = !whole;
    for (auto& [offset, wanted] : units_) {
      Dwarf_Die die;
      if (dwarf_offdie(dwarf_, offset, &die) == nullptr) {
        damaged = true;
        continue;
      }
      std::sort(wanted.begin(), wanted.end());
      Unit unit(die, addresses_, wanted);
      unit.read(take);
      damaged = damaged || unit.damaged();
    }
    return !damaged;
  }

 private:
  // .debug_aranges maps addresses to units; not every compiler writes it.
  void find_by_index() {
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      Dwarf_Die die;
      if (dwarf_addrdie(dwarf_, addresses_[i], &die) == nullptr)
        left_.push_back(i);
      else
        units_[dwarf_dieoffset(&die)].push_back(i);
    }
  }

  bool find_by_units() {
    Dwarf_Off at = 0, next = 0;
    std::size_t header = 0;
    int found = 0;
    bool whole = true;
    while (!left_.empty() &&
           (found = dwarf_nextcu(dwarf_, at, &next, &header, nullptr, nullptr, nullptr)) == 0) {
      Dwarf_Die die;
      if (dwarf_offdie(dwarf_, at + header, &die) != nullptr)
        take_unit(die);
      else
        whole = false;
      if (next <= at) return false;
      at = next;
    }
    return whole && found >= 0;
  }

  void take_unit(Dwarf_Die& die) {
    ptrdiff_t offset = 0;
    Dwarf_Addr base = 0, begin = 0, end = 0;
    while ((offset = dwarf_ranges(&die, offset, &base, &begin, &end)) > 0) {
      const auto [first, last] = within(left_, addresses_, begin, end);
      if (first == last) continue;
      Wanted& wanted = units_[dwarf_dieoffset(&die)];
      wanted.insert(wanted.end(), first, last);
      left_.erase(first, last);
    }
  }

  Dwarf* dwarf_;
  std::span<const std::uint64_t> addresses_;
  Wanted left_;
  std::map<Dwarf_Off, Wanted> units_;  // by the offset of the unit's DIE
};

}  // namespace

Result<void> read_dwarf_places(int file, std::span<const std::uint64_t> addresses,
                               const TakePlaces& take) {
  elf_version(EV_CURRENT);
  std::unique_ptr<Elf, int (*)(Elf*)> elf(elf_begin(file, ELF_C_READ_MMAP, nullptr), elf_end);
  if (!elf) return error(fmt::format("{}", elf_errmsg(-1)));
  std::unique_ptr<Dwarf, int (*)(Dwarf*)> dwarf(dwarf_begin_elf(elf.get(), DWARF_C_READ, nullptr),
                                                dwarf_end);
  if (!dwarf) return error(fmt::format("{}", dwarf_errmsg(-1)));
  if (!Lookup(dwarf.get(), addresses).run(take)) return error("its DWARF is damaged");
  return {};
}

}  // namespace dynprof
