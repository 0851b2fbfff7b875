// `report` and `export`: answers from a recording, without root and without the target.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/export.h"
#include "symbolizer/export/select.h"
#include "symbolizer/profile/folded_recording.h"
#include "symbolizer/report/report.h"
#include "user/cli/commands.h"
#include "user/cli/output_directory.h"
#include "user/cli/outputs.h"
#include "user/cli/terminal.h"
#include "user/symbols/find_names.h"

namespace dynprof {
namespace {

int fail(const Error& failure) {
  print_error(failure);
  return failure.exit_code;
}

Result<std::unique_ptr<Recording>> named(std::unique_ptr<Recording> recording,
                                         const std::string& symbols, Terminal& terminal) {
  std::error_code failure;
  if (!std::filesystem::is_directory(symbols, failure))
    return error(fmt::format("--symbols: {} is not a directory", escape_terminal(symbols)));
  FoundNames found = find_names(*recording, symbols);
  terminal.line(fmt::format("--symbols: {} native frames named from {} files, {} with source lines",
                            found.names.size(), found.files, found.places.size()));
  if (found.refused > 0)
    terminal.line(fmt::format("warning: files of another build-id were refused for {} objects",
                              found.refused));
  if (!found.problem.empty()) terminal.line("warning: " + found.problem);
  return with_names(std::move(recording), std::move(found.names), std::move(found.places));
}

Result<std::unique_ptr<Recording>> open_recording(const std::string& where,
                                                  const std::string& symbols, Terminal& terminal) {
  // Frames are renamed as they were recorded, and then shown with what is inlined in them.
  ASSIGN_OR_RETURN(auto recording, symbols.empty()
                                       ? Recording::open(recording_path(where))
                                       : Recording::open_as_recorded(recording_path(where)));
  warn_of_losses(*recording, terminal);
  if (!symbols.empty()) return named(std::move(recording), symbols, terminal);
  return recording;
}

Error usage_error(std::string what, std::string hint) {
  Error e = error(std::move(what), std::move(hint));
  e.exit_code = 2;
  return e;
}

Result<Phase> parse_phase(const std::string& text) {
  std::string known;
  for (int i = 0; i < static_cast<int>(Phase::kCount); i++) {
    auto phase = static_cast<Phase>(i);
    if (text == phase_text(phase)) return phase;
    known += (i ? ", " : "") + std::string(phase_text(phase));
  }
  return usage_error(fmt::format("there is no phase '{}'", escape_terminal(text)),
                     "phases are " + known);
}

Result<std::vector<SortKey>> parse_sort(const std::string& text) {
  static constexpr std::pair<std::string_view, SortKey> kKeys[] = {
      {"comm", SortKey::kComm},     {"dso", SortKey::kDso},     {"sym", SortKey::kSymbol},
      {"symbol", SortKey::kSymbol}, {"phase", SortKey::kPhase}, {"compile", SortKey::kCompile}};
  std::vector<SortKey> keys;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    auto known = std::find_if(std::begin(kKeys), std::end(kKeys),
                              [&](const auto& key) { return key.first == word; });
    if (known == std::end(kKeys))
      return usage_error(fmt::format("cannot sort by '{}'", escape_terminal(word)),
                         "keys are comm, dso, sym, phase and compile");
    keys.push_back(known->second);
  }
  return keys;
}

Result<ReportOptions> report_options(const ReportArguments& arguments,
                                     const Attribution& attribution) {
  ReportOptions options;
  options.percent_limit = arguments.percent_limit;
  options.children = arguments.children;
  if (!arguments.compile.empty()) {
    ASSIGN_OR_RETURN(options.compiles, find_compiles(attribution, arguments.compile));
    options.tables = true;  // one compile: its two tables too
  }
  if (!arguments.phase.empty()) {
    ASSIGN_OR_RETURN(Phase phase, parse_phase(arguments.phase));
    options.phases.push_back(phase);
  }
  if (!arguments.sort.empty()) {
    ASSIGN_OR_RETURN(options.sort, parse_sort(arguments.sort));
  }
  return options;
}

}  // namespace

int run_report(const CommandLine& line) {
  Terminal terminal(line.quiet);
  auto recording = open_recording(line.report.directory, line.report.symbols, terminal);
  if (!recording) return fail(recording.error());
  Attribution attribution(**recording);
  auto options = report_options(line.report, attribution);
  if (!options) return fail(options.error());
  FoldedRecording folded(attribution, line.report.cpu_only);
  fmt::print("{}", render_report(folded, *options));
  return 0;
}

int run_export(const CommandLine& line) {
  Terminal terminal(line.quiet);
  auto recording = open_recording(line.exports.directory, line.exports.symbols, terminal);
  if (!recording) return fail(recording.error());
  Attribution attribution(**recording);
  auto written = export_recording(attribution, line.exports.format, line.exports.output,
                                  line.exports.compile, owner_behind_sudo(), line.exports.cpu_only);
  if (!written) return fail(written.error());
  terminal.line(fmt::format("wrote {}", escape_terminal(line.exports.output)));
  return 0;
}

}  // namespace dynprof
