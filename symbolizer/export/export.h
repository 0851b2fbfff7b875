// `export`: writes a recording in any of the formats of formats.h.
#pragma once

#include <span>
#include <string_view>

#include "symbolizer/export/request.h"

namespace dynprof {

struct ExportFormat {
  const char* name;
  const char* description;  // one line, for --help
  const char* extension;    // of a file of this format, ".json"
  Result<void> (*write)(const ExportRequest& request);
};

std::span<const ExportFormat> export_formats();

// Writes `format` to `target`.
// `compile` restricts it to the compiles find_compiles (select.h) takes it for, "": everything.
// The profile of a compile is of its thread's wall time unless the analysis is `cpu_only`.
// An unknown format is an error of usage (exit code 2).
Result<void> export_recording(const Analysis& analysis, std::string_view format,
                              const ExportTarget& target, std::string_view compile = {},
                              const ExportSettings& settings = {});

}  // namespace dynprof
