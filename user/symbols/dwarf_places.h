// Source places of addresses in one ELF file with DWARF, by libdw. The file may be hostile and
// libdw is not written for such input: use it only in a process that may crash (place_helper.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/symbols/named_place.h"

namespace dynprof {

// As SourcePlaces: functions that are inlined there, innermost first, at most kMaxInlined of them
// (the outer ones), then the function they are inlined into.
using PlaceChain = std::vector<NamedPlace>;
using TakePlaces = std::function<void(std::size_t index, const PlaceChain& chain)>;

// Looks up `addresses` (ascending, in the file's own address space) and hands out what it finds,
// one unit of the program after the other; addresses without DWARF are skipped. The error
// says that the DWARF is damaged; what was handed out before holds.
Result<void> read_dwarf_places(int file, std::span<const std::uint64_t> addresses,
                               const TakePlaces& take);

}  // namespace dynprof
