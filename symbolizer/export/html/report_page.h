// The page of one recording: `export -f html`, and report.html in the output directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/export/html/page.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

// Of `options`, its compiles (none: everything) and user_packages count.
Result<void> write_html(const Analysis& analysis, const ReportOptions& options, ByteSink& sink);

// The report's lines on how it was recorded and how complete it is, without their "# ".
std::vector<std::string> about_lines(const Selection& selection);

}  // namespace dynprof
