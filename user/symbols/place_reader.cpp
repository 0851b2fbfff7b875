#include "user/symbols/place_reader.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "symbolizer/base/text.h"
#include "user/symbols/confined_process.h"
#include "user/symbols/place_helper.h"
#include "user/symbols/place_wire.h"
#include "user/unwind_tables/debug_file.h"

namespace dynprof {
namespace {

std::string& helper() {
  static std::string program;
  return program;
}

UniqueFd another(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

std::string why_not(const ConfinedRun& run, bool ended) {
  if (!run.problem.empty()) return "its reader " + run.problem;
  if (run.status == kDwarfDamaged) return "its DWARF is damaged";
  if (run.status == kNotConfined) return "its reader could not give up its rights";
  if (run.status != 0) return fmt::format("its reader failed with status {}", run.status);
  return ended ? "" : "its reader gave an incomplete answer";
}

}  // namespace

void PlaceReader::set_helper(std::string program) { helper() = std::move(program); }

PlacesByAddress PlaceReader::read(int dwarf, std::vector<std::uint64_t> addresses,
                                  std::string_view name, pid_t pid) {
  PlacesByAddress places;
  if (helper().empty() || addresses.empty()) return places;
  const auto reading = accounts_.begin(pid);
  if (reading.time().count() <= 0) {
    failed(name, "there was no time left for it");
    return places;
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  const bool too_many = addresses.size() > kMaxPlaceAddresses;
  if (too_many) addresses.resize(kMaxPlaceAddresses);
  ConfinedLimits limits;
  limits.wall = reading.time();
  const ConfinedRun run = run_confined(helper(), {"dynprof-bpf", kPlaceHelperVerb}, dwarf,
                                       encode_wanted(addresses), limits);
  PlaceAnswers answers = decode_places(run.output, addresses.size());
  for (auto& [index, chain] : answers.found) places[addresses[index]] = std::move(chain);
  std::string why = why_not(run, answers.ended);
  if (why.empty() && too_many) why = "it has too many addresses";
  if (!why.empty()) failed(name, why);
  return places;
}

void PlaceReader::failed(std::string_view name, std::string_view why) {
  if (failures_++ == 0) first_ = fmt::format("{}: {}", escape_terminal(base_name(name)), why);
}

std::string PlaceReader::problem() const {
  if (failures_ == 0) return {};
  return fmt::format("source lines of {} file{} could not be read: {}{}", failures_,
                     failures_ == 1 ? "" : "s", first_, failures_ == 1 ? "" : "; ...");
}

UniqueFd find_dwarf_file(int own, int root, const std::string& path, ReadBudget& budget) {
  auto source = ByteSource::of_file(another(own));
  if (source) source->pay_from(&budget);
  auto layout = source ? read_elf_layout(*source) : Result<ElfLayout>(source.error());
  if (!layout) return UniqueFd();
  if (layout->debug_info.present()) return another(own);
  auto debug = find_debug_file(
      root, path, *layout, [](const ElfLayout& file) { return file.debug_info.present(); },
      &budget);
  return debug ? another(debug->file.file()) : UniqueFd();
}

}  // namespace dynprof
