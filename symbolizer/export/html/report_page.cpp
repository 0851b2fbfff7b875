#include "symbolizer/export/html/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "symbolizer/export/formats.h"
#include "symbolizer/export/html/flame_data.h"
#include "symbolizer/export/html/tables.h"
#include "symbolizer/export/html/timeline_data.h"
#include "symbolizer/report/findings.h"
#include "symbolizer/report/rows.h"

namespace dynprof {

std::vector<std::string> about_lines(const Selection& selection) {
  std::string text;
  append_about(text, selection);
  append_losses(text, selection);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    // "#   ..." goes on with the line before.
    if (line.starts_with("#   ") && !lines.empty())
      lines.back() += ' ' + line.substr(4);
    else if (line.starts_with("# "))
      lines.push_back(line.substr(2));
  }
  return lines;
}

Result<void> write_html(const Analysis& analysis, const ReportOptions& options, ByteSink& sink) {
  const std::vector<CompileIndex>& compiles = options.compiles;
  const Selection selection = select_samples(analysis, options);
  const Meta& meta = analysis.attribution().recording().meta();
  Page page;
  page.title = meta.command.empty() ? "a recording" : meta.command;
  if (meta.target_pid > 0) page.title += fmt::format(" (pid {})", meta.target_pid);
  if (compiles.empty()) {
    page.summary = summary_items(selection, find(selection));
  } else {
    std::string only;
    for (CompileIndex i : selection.compiles)
      only += (only.empty() ? "" : ", ") + analysis.attribution().label(i);
    page.summary.emplace_back("Only", "compiles " + only);
  }

  FlameData flame;
  flame.add(analysis, compiles, 0);
  flame.prune();
  const TimelineData timeline(analysis, compiles);
  page.flame = &flame;
  page.timeline = &timeline;

  page.tables.push_back(compile_table(selection, flame));
  page.tables.push_back(user_line_table(selection));
  page.tables.push_back(operator_table(selection));
  page.tables.push_back(module_table(selection));
  page.tables.push_back(wait_table(selection));
  if (compiles.empty()) {
    page.tables.push_back(start_up_table(selection));
    page.tables.push_back(region_table(selection));
    page.tables.push_back(triton_table(selection));
    page.tables.push_back(annotation_table(selection));
    page.tables.push_back(process_table(selection));
    for (PageTable& table : gpu_tables(selection)) page.tables.push_back(std::move(table));
  }
  std::erase_if(page.tables, [](const PageTable& table) {
    return table.rows.empty() && table.id != "compiles";
  });
  add_code(page, selection);
  page.about = about_lines(selection);
  return write_page(page, sink);
}

Result<void> export_html(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  ReportOptions options;
  options.compiles = request.compiles;
  options.user_packages = request.settings.user_packages;
  return write_html(request.analysis, options, *sink);
}

}  // namespace dynprof
