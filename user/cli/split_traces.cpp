#include "user/cli/split_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "symbolizer/base/gzip.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/select.h"
#include "symbolizer/recording/open_fd.h"
#include "user/cli/output_directory.h"
#include "user/cli/outputs.h"
#include "user/cli/terminal.h"
#include "user/cli/without_root.h"

namespace dynprof {
namespace {

constexpr std::size_t kMostFiles = 1000;

struct Part {
  std::string name;
  TraceWindow window;
};

// "rank1-00000.000s-00030.000s.trace.json.gz"; "rank1.trace.json.gz" where there is one for each rank.
std::string file_name(const std::string& rank, std::uint64_t from_ns, std::uint64_t to_ns,
                      bool all_time) {
  if (all_time) return (rank.empty() ? "" : rank + ".") + "trace.json.gz";
  return fmt::format("{}{:09.3f}s-{:09.3f}s.trace.json.gz", rank.empty() ? "" : rank + "-",
                     static_cast<double>(from_ns) / 1e9, static_cast<double>(to_ns) / 1e9);
}

// Of each rank, or of everything together where there are none; by time.
std::vector<Part> parts_of(const Attribution& attribution, const ExportOptions& options) {
  std::vector<std::pair<std::string, std::int32_t>> processes;
  for (const auto& [pid, rank] : attribution.ranks())
    processes.emplace_back(sanitize_file_component("rank" + rank), pid);
  if (processes.empty()) processes.emplace_back("", 0);
  const Recording& recording = attribution.recording();
  const std::uint64_t start_ns = recording.meta().start_ns;
  const std::uint64_t length_ns = std::max(recording.trailer().end_ns, start_ns + 1) - start_ns;
  const std::uint64_t end_ns = std::min(options.window.to_ns, length_ns);
  std::vector<Part> parts;
  for (std::uint64_t at = options.window.from_ns, until = at; at < end_ns; at = until) {
    until = options.split_ns < end_ns - at ? at + options.split_ns : end_ns;
    for (const auto& [rank, pid] : processes)
      parts.push_back({file_name(rank, at, until, options.split_ranks),
                       // The last has what was open when the recording ended.
                       {at, until == length_ns ? options.window.to_ns : until, pid}});
    if (parts.size() > kMostFiles) break;
  }
  return parts;
}

Result<void> write_parts(const OutputDirectory& directory, UniqueFd file,
                         const ExportOptions& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(auto recording,
                   recording::open_fd(std::move(file), recording_path(options.directory)));
  warn_of_losses(*recording, terminal);
  const Attribution attribution(*recording);
  const Analysis analysis(attribution, options.cpu_only);
  std::vector<CompileIndex> compiles;
  if (!options.compile.empty()) {
    ASSIGN_OR_RETURN(compiles, find_compiles(attribution, options.compile));
  }
  const std::vector<Part> parts = parts_of(attribution, options);
  if (parts.size() > kMostFiles)
    return error(fmt::format("more than {} files", kMostFiles), "a larger --split");
  for (const Part& part : parts) {
    ASSIGN_OR_RETURN(auto output, directory.file(part.name));
    ASSIGN_OR_RETURN(auto sink, make_gzip_sink(std::move(output)));
    ASSIGN_OR_RETURN(const TraceMerges merges,
                     write_chrome_trace(analysis, compiles, std::move(sink),
                                        options.max_trace_bytes, part.window));
    if (const std::string merged = merges.sentence(options.max_trace_bytes); !merged.empty())
      terminal.line("note: " + part.name + ": " + merged);
  }
  terminal.line(
      fmt::format("wrote {} traces to {}/", parts.size(), escape_terminal(directory.path())));
  return {};
}

}  // namespace

int run_split(const CommandLine& line) {
  Terminal terminal(line.quiet);
  auto file = recording::open_for_reading(recording_path(line.exports.directory));
  if (!file) return fail(file.error());
  auto directory = OutputDirectory::create(line.exports.output);
  if (!directory) return fail(directory.error());
  auto status = write_without_root(*directory, terminal, [&] {
    auto written = write_parts(*directory, std::move(*file), line.exports, terminal);
    return written ? 0 : fail(written.error());
  });
  return status ? *status : fail(status.error());
}

}  // namespace dynprof
