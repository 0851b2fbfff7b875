// `report` and `export`: answers from a recording, without root and without the target.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/export.h"
#include "symbolizer/export/select.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/recording/open_fd.h"
#include "symbolizer/report/report.h"
#include "user/cli/commands.h"
#include "user/cli/outputs.h"
#include "user/cli/split_traces.h"
#include "user/cli/standard_streams.h"
#include "user/cli/terminal.h"
#include "user/cli/usage_error.h"
#include "user/cli/without_root.h"
#include "user/privileges/leave_root.h"
#include "user/symbols/find_names.h"

namespace dynprof {
namespace {

Result<std::unique_ptr<Recording>> named(std::unique_ptr<Recording> recording,
                                         const std::string& symbols, Terminal& terminal) {
  std::error_code failure;
  if (!std::filesystem::is_directory(symbols, failure))
    return error(fmt::format("--symbols: {} is not a directory", escape_terminal(symbols)));
  FoundNames found = find_names(*recording, symbols);
  terminal.line(fmt::format("--symbols: {} native frames named from {} files, {} with source lines",
                            found.names.size(), found.files, found.places.size()));
  if (found.refused > 0)
    terminal.line(fmt::format("warning: {} objects: files with a different build-id were not used",
                              found.refused));
  if (!found.problem.empty()) terminal.line("warning: " + found.problem);
  return with_names(std::move(recording), std::move(found.names), std::move(found.places));
}

// The recording is opened with the rights we were started with, and nothing more: its bytes are read
// without them, as are the symbol files, which root without sudo can still read whatever their owner.
Result<UniqueFd> open_and_leave_root(const std::string& where, bool symbols, Terminal& terminal) {
  ASSIGN_OR_RETURN(UniqueFd file, recording::open_for_reading(recording_path(where)));
  std::string note;
  TRY(leave_root(note, symbols ? Keep::kReading : Keep::kNothing));
  if (!note.empty()) terminal.line("note: " + note);
  return file;
}

Result<std::unique_ptr<Recording>> read_recording(UniqueFd file, const std::string& where,
                                                  const std::string& symbols, Terminal& terminal) {
  // Frames are renamed as they were recorded, and then shown with what is inlined in them.
  ASSIGN_OR_RETURN(auto recording, recording::open_fd(std::move(file), recording_path(where),
                                                      /*inlined_shown=*/symbols.empty()));
  warn_of_losses(*recording, terminal);
  if (symbols.empty()) return recording;
  auto renamed = named(std::move(recording), symbols, terminal);
  TRY(give_up_reading());
  return renamed;
}

// `sudo_uid`: of the user behind sudo, whose rights files are made with.
int export_to(const ExportTarget& target, UniqueFd file, const CommandLine& line,
              std::optional<uid_t> sudo_uid, Terminal& terminal) {
  auto recording =
      read_recording(std::move(file), line.exports.directory, line.exports.symbols, terminal);
  if (!recording) return fail(recording.error());
  const Attribution attribution(**recording);
  const Analysis analysis(attribution, line.exports.cpu_only);
  ExportSettings settings;
  settings.max_trace_bytes = line.exports.max_trace_bytes;
  settings.window = line.exports.window;
  settings.user_packages = line.exports.user_code;
  settings.note = [&](const std::string& sentence) {
    terminal.line("note: " + sentence + "; --max-trace-size sets the limit");
  };
  auto written =
      export_recording(analysis, line.exports.format, target, line.exports.compile, settings);
  if (!written) {
    Error failure = written.error();
    if (failure.errno_value == EACCES && sudo_uid)
      failure.hint = fmt::format(
          "files are created as uid {} (SUDO_UID): use -o FILE with a place that user may write to",
          *sudo_uid);
    return fail(failure);
  }
  terminal.line(fmt::format("wrote {}", escape_terminal(target.path)));
  return 0;
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
  options.losses = arguments.losses;
  options.user_packages = arguments.user_code;
  options.annotation = arguments.annotation;
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
  const ReportArguments& arguments = line.report;
  auto file = open_and_leave_root(arguments.directory, !arguments.symbols.empty(), terminal);
  if (!file) return fail(file.error());
  auto recording =
      read_recording(std::move(*file), arguments.directory, arguments.symbols, terminal);
  if (!recording) return fail(recording.error());
  Attribution attribution(**recording);
  auto options = report_options(arguments, attribution);
  if (!options) return fail(options.error());
  const Analysis analysis(attribution, arguments.cpu_only);
  if (auto printed = print_out(render_report(analysis, *options)); !printed)
    return fail(printed.error());
  return 0;
}

int run_export(const CommandLine& line) {
  if (line.exports.split_ns != 0) return run_split(line);
  Terminal terminal(line.quiet);
  const ExportOptions& arguments = line.exports;
  const bool symbols = !arguments.symbols.empty();
  if (arguments.output != "-" && is_plain_root()) {
    auto file = recording::open_for_reading(recording_path(arguments.directory));
    if (!file) return fail(file.error());
    auto status = write_file_without_root(
        arguments.output, symbols ? Keep::kReading : Keep::kNothing, [&](int output) {
          return export_to({arguments.output, output}, std::move(*file), line, {}, terminal);
        });
    return status ? *status : fail(status.error());
  }
  const auto user = user_behind_sudo();  // gone with root's rights
  auto file = open_and_leave_root(arguments.directory, symbols, terminal);
  if (!file) return fail(file.error());
  return export_to({arguments.output}, std::move(*file), line,
                   user ? std::optional(user->uid) : std::nullopt, terminal);
}

}  // namespace dynprof
