// Source places of addresses: asks a process of its own for each file with DWARF (place_helper.h),
// checks what it answers, and keeps account of what could not be read.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "user/symbols/dwarf_places.h"
#include "user/target/read_accounts.h"
#include "user/unwind_tables/byte_source.h"

namespace dynprof {

using PlacesByAddress = std::unordered_map<std::uint64_t, PlaceChain>;

class PlaceReader {
 public:
  // For the program whose verb kPlaceHelperVerb runs the helper; without it no places are read.
  static void set_helper(std::string program);

  // `dwarf`: an open file with DWARF, mapped by process `pid`; `name` is for the text of a failure.
  // Addresses in any order.
  PlacesByAddress read(int dwarf, std::vector<std::uint64_t> addresses, std::string_view name,
                       pid_t pid);
  // "source lines of 2 files could not be read: liba.so: ..."; "" when none failed.
  std::string problem() const;

 private:
  void failed(std::string_view name, std::string_view why);

  // Of time only, its own process's bounds are on memory. Half of it is for other processes' files.
  static constexpr ReadLimits kLimits = {.file = {1, std::chrono::seconds(30)},
                                         .process = {1ULL << 20, std::chrono::seconds(30)},
                                         .all = {1ULL << 20, std::chrono::seconds(60)}};

  ReadAccounts accounts_{kLimits};
  std::size_t failures_ = 0;
  std::string first_;  // of them
};

// The file that has DWARF about `own`: itself, else its separate debug file, looked for below
// `root` as in find_debug_file (-1: nowhere). Invalid: there is none.
UniqueFd find_dwarf_file(int own, int root, const std::string& path, ReadBudget& budget);

}  // namespace dynprof
