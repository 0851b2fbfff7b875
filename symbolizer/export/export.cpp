#include "symbolizer/export/export.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "symbolizer/base/text.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/export/select.h"

namespace dynprof {
namespace {

constexpr ExportFormat kFormats[] = {
#define DYNPROF_EXPORT_FORMAT(name, function, extension, description) \
  {name, description, extension, function},
    DYNPROF_EXPORT_FORMATS(DYNPROF_EXPORT_FORMAT)
#undef DYNPROF_EXPORT_FORMAT
};

}  // namespace

std::span<const ExportFormat> export_formats() { return kFormats; }

Result<void> export_recording(const Analysis& analysis, std::string_view format,
                              const ExportTarget& target, std::string_view compile,
                              const ExportSettings& settings) {
  auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                            [&](const ExportFormat& known) { return format == known.name; });
  if (found == std::end(kFormats)) {
    Error unknown = error("unknown format '" + escape_terminal(format) + "'", "formats:");
    for (const ExportFormat& known : kFormats) unknown.hint += std::string(" ") + known.name;
    unknown.exit_code = 2;
    return unknown;
  }
  ExportRequest request{analysis, {}, target, settings};
  if (!compile.empty()) {
    ASSIGN_OR_RETURN(request.compiles, find_compiles(analysis.attribution(), compile));
  }
  return found->write(request);
}

}  // namespace dynprof
