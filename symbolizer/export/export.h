// The formats of `export`, as a table, and the one function that writes any of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/base/file_output.h"

namespace dynprof {

struct ExportRequest;

struct ExportFormat {
  const char* name;
  const char* description;  // one line, for --help
  const char* extension;    // of a file of this format, ".json"
  Result<void> (*write)(const ExportRequest& request);
};

std::span<const ExportFormat> export_formats();

// Writes `format` to the new file `path`; "-" is stdout, a name that ends in ".gz" is compressed.
// `compile` restricts it to the compiles find_compiles (select.h) takes it for, "": everything.
// The profile of a compile is of its thread's wall time, or `cpu_only` of its samples alone.
// An unknown format is an error of usage (exit code 2).
Result<void> export_recording(const Attribution& attribution, std::string_view format,
                              const std::string& path, std::string_view compile = {},
                              std::optional<FileOwner> owner = {}, bool cpu_only = false);

}  // namespace dynprof
