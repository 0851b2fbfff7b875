// One export: of what, and where it goes. What each format's function is given (formats.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/result.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

struct ExportSettings {
  std::uint64_t max_trace_bytes = kMaxTraceBytes;         // of a chrome trace
  std::vector<std::string> user_packages{};               // of html, see ReportOptions
  std::function<void(const std::string& sentence)> note;  // something worth knowing; may be empty
  TraceWindow window{};                                   // of a chrome trace
};

// The new file `path`, "-" for stdout; compressed if the name ends in ".gz".
struct ExportTarget {
  std::string path;
  int fd = -1;  // that file where it is open already: written to, neither closed nor removed
};

Result<std::unique_ptr<ByteSink>> open_target(const ExportTarget& target);

struct ExportRequest {
  const Analysis& analysis;
  std::vector<CompileIndex> compiles;  // empty: everything
  ExportTarget target;
  ExportSettings settings;

  // The target is created here, so call this when there is something to write.
  Result<std::unique_ptr<ByteSink>> open() const { return open_target(target); }
  // All of the output at once.
  Result<void> write(std::string_view text) const;
  // Of one compile, or of several as one; without any, of everything.
  std::vector<StackCount> counts() const;
};

}  // namespace dynprof
