// The formats of `export`, as a table, and the one function that writes any of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/result.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

struct ExportRequest;

struct ExportFormat {
  const char* name;
  const char* description;  // one line, for --help
  const char* extension;    // of a file of this format, ".json"
  Result<void> (*write)(const ExportRequest& request);
};

std::span<const ExportFormat> export_formats();

struct ExportSettings {
  std::uint64_t max_trace_bytes = kMaxTraceBytes;         // of a chrome trace
  std::vector<std::string> user_packages{};               // of html, see ReportOptions
  std::function<void(const std::string& sentence)> note;  // something worth knowing; may be empty
};

// Where an export goes: the new file `path`, "-" for stdout; compressed if the name ends in ".gz".
struct ExportTarget {
  std::string path;
  int fd = -1;  // that file where it is open already: written to, neither closed nor removed
};

// Opened by each format itself, when it knows that it can be written.
Result<std::unique_ptr<ByteSink>> open_target(const ExportTarget& target);

// Writes `format` to `target`.
// `compile` restricts it to the compiles find_compiles (select.h) takes it for, "": everything.
// The profile of a compile is of its thread's wall time unless the analysis is `cpu_only`.
// An unknown format is an error of usage (exit code 2).
Result<void> export_recording(const Analysis& analysis, std::string_view format,
                              const ExportTarget& target, std::string_view compile = {},
                              const ExportSettings& settings = {});

}  // namespace dynprof
