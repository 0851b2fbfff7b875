// Everything that is made from a recording into its directory: report, ledger, traces, profiles and
// call graphs. The names are a contract: scripts rely on them.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/recording/reader.h"
#include "user/cli/generated_output.h"
#include "user/cli/output_directory.h"
#include "user/cli/terminal.h"

namespace dynprof {

inline constexpr const char* kRecordingName = "recording.dynprof";

struct OutputOptions {
  bool call_graphs = false;
  bool print_report = false;
  bool cpu_only = false;                     // profiles without what was waited
  std::vector<std::string> user_packages{};  // see ReportOptions
  std::uint64_t max_trace_bytes = kMaxTraceBytes;
  // The limits of all call graphs together.
  std::size_t most_call_graphs = 200;
  std::chrono::milliseconds call_graph_time{10'000};
  DecompileOptions decompile{};
};

// From the recording in `directory`, open already: we may have given up the rights to open it. The report
// is printed first. What cannot be written is named and the rest goes on; the first such error is returned.
Result<void> write_outputs(const OutputDirectory& directory, UniqueFd recording_file,
                           const OutputOptions& options, Terminal& terminal);

// Says on stderr what of the recording could not be read, and whether its end is missing.
void warn_of_losses(const Recording& recording, Terminal& terminal);

// The recording's path, given the directory it lies in or the file itself.
std::string recording_path(const std::string& directory_or_file);

}  // namespace dynprof
