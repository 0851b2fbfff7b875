#include "user/cli/outputs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "symbolizer/base/gzip.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/call_graph.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/compiles_json.h"
#include "symbolizer/export/dynamo_pstats.h"
#include "symbolizer/export/graphviz.h"
#include "symbolizer/export/html/report_page.h"
#include "symbolizer/export/operators_json.h"
#include "symbolizer/export/pstats.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/recording/open_fd.h"
#include "symbolizer/report/dynamo_table.h"
#include "symbolizer/report/report.h"
#include "symbolizer/report/rows.h"
#include "user/cli/call_graphs.h"
#include "user/cli/generated_output.h"
#include "user/cli/standard_streams.h"

namespace dynprof {
namespace {

// One directory's worth of files; remembers the first failure and goes on.
class Outputs {
 public:
  Outputs(const OutputDirectory& directory, const Analysis& analysis, Terminal& terminal,
          const OutputOptions& options)
      : directory_(directory),
        analysis_(analysis),
        attribution_(analysis.attribution()),
        terminal_(terminal),
        options_(options) {
    find_dot_program();
  }

  // What is to be printed; report.txt has it, and profile tables behind it.
  std::string write_report() {
    ReportOptions options = report_options();
    std::string report = render_report(analysis_, options);
    options.tables = true;
    write_file(directory_, "report.txt", render_report(analysis_, options));
    return report;
  }

  void write_files() {
    if (first_sampled() != kNoCompile || any_traced()) {
      auto made = directory_.subdirectory("compiles");
      if (made)
        compiles_.emplace(std::move(*made));
      else
        failed(made.error());
    }
    write_file(directory_, "compiles.json", compiles_json(analysis_, {}, options_.user_packages));
    write_operators();
    write_page();
    write_profiles();
    write_dynamo_profiles();
    write_generated_code();
    write_traces(options_.max_trace_bytes);
    if (!dot_.empty() && compiles_) write_call_graphs();
  }

  // Those without samples have no files of their own.
  CompileIndex first_sampled() const {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (attribution_.compiles()[i].samples > 0) return i;
    return kNoCompile;
  }
  std::size_t generated() const { return generated_; }
  const std::string& generated_page() const { return generated_page_; }
  const std::string& drawn() const { return drawn_; }
  std::optional<Error> first_error() const { return first_error_; }

 private:
  void failed(const Error& failure) {
    if (!first_error_) first_error_ = failure;
  }

  void write_file(const OutputDirectory& directory, const std::string& name,
                  std::string_view bytes) {
    auto file = directory.file(name);
    if (!file) return failed(file.error());
    (*file)->write(bytes);
    if (auto done = (*file)->finish(); !done) failed(done.error());
  }

  void write_page() {
    auto file = directory_.file("report.html");
    if (!file) return failed(file.error());
    if (auto done = write_html(analysis_, report_options(), **file); !done) failed(done.error());
  }

  void write_operators() {
    if (analysis_.operators().empty()) return;
    const ReportOptions options = report_options();
    write_file(directory_, "operators.json", operators_json(select_samples(analysis_, options)));
  }

  ReportOptions report_options() const {
    ReportOptions options;
    options.user_packages = options_.user_packages;
    return options;
  }

  void find_dot_program() {
    if (!options_.call_graphs || (first_sampled() == kNoCompile && !any_traced())) return;
    const char* path = std::getenv("PATH");
    if (auto dot = find_dot(path ? path : ""))
      dot_ = *dot;
    else
      terminal_.line("note: " + dot.error().what);
  }

  // Compiles no sample showed have nothing to draw or to fold.
  template <class Visit>
  void for_each_sampled(const Visit& visit) {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (attribution_.compiles()[i].samples > 0) visit(i, attribution_.file_stem(i));
  }

  void write_profiles() {
    if (!compiles_) return;
    for_each_sampled([&](CompileIndex i, const std::string& stem) {
      write_file(*compiles_, stem + ".profile",
                 pstats_bytes(analysis_.of(i), analysis_.functions()));
    });
  }

  bool any_traced() const {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (analysis_.traced().of(i)) return true;
    return false;
  }

  template <class Visit>
  void for_each_traced(const Visit& visit) {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (const DynamoProfile* profile = analysis_.traced().of(i))
        visit(*profile, attribution_.file_stem(i) + ".dynamo");
  }

  void write_dynamo_profiles() {
    if (!compiles_) return;
    for_each_traced([&](const DynamoProfile& profile, const std::string& stem) {
      write_file(*compiles_, stem + ".profile", dynamo_pstats_bytes(profile));
      write_file(*compiles_, stem + ".txt", dynamo_table_text(profile, stem));
      write_file(*compiles_, stem + ".folded", dynamo_folded(profile));
    });
  }

  void write_traces(std::uint64_t max_bytes) {
    std::vector<TraceTarget> targets;
    targets.push_back({{}, [this]() -> Result<std::unique_ptr<ByteSink>> {
                         ASSIGN_OR_RETURN(auto file, directory_.file("trace.json.gz"));
                         return make_gzip_sink(std::move(file));
                       }});
    if (compiles_) {
      for_each_sampled([&](CompileIndex i, const std::string& stem) {
        targets.push_back({{i}, [this, stem]() -> Result<std::unique_ptr<ByteSink>> {
                             ASSIGN_OR_RETURN(auto file, compiles_->file(stem + ".trace.json.gz"));
                             return make_gzip_sink(std::move(file));
                           }});
      });
    }
    auto done = write_chrome_traces(analysis_, std::move(targets), max_bytes);
    if (!done) return failed(done.error());
    if (std::string merged = done->sentence(max_bytes); !merged.empty())
      terminal_.line("note: " + merged + "; --max-trace-size sets the limit");
  }

  void write_generated_code() {
    const Generated& generated = analysis_.generated();
    const Decompiled decompiled =
        decompile_all(attribution_, generated, options_.decompile, terminal_);
    GeneratedOutput written = write_generated(directory_, attribution_, generated, decompiled);
    if (written.first_error) failed(*written.first_error);
    generated_ = written.files;
    generated_page_ = std::move(written.page);
  }

  // Those of the compiles with most time come first: together they may take a limited time.
  void write_call_graphs() {
    CallGraphs graphs(*compiles_, dot_, terminal_,
                      {options_.most_call_graphs, options_.call_graph_time});
    std::vector<CompileIndex> order;
    for_each_sampled([&](CompileIndex i, const std::string&) { order.push_back(i); });
    const auto& compiles = attribution_.compiles();
    const std::uint64_t period_ns = attribution_.recording().meta().period_ns;
    std::stable_sort(order.begin(), order.end(), [&](CompileIndex a, CompileIndex b) {
      return compiles[a].wall_ns(period_ns) > compiles[b].wall_ns(period_ns);
    });
    for (CompileIndex i : order) {
      const bool drawn = graphs.draw(attribution_.file_stem(i), [&] {
        const Profile profile = analysis_.python_only(analysis_.wall_counts(i), /*whole=*/false);
        return dot_text(prune(call_graph_of(profile, analysis_.functions())),
                        "compile " + attribution_.label(i));
      });
      if (drawn && drawn_.empty()) drawn_ = attribution_.file_stem(i);
    }
    for_each_traced([&](const DynamoProfile& profile, const std::string& stem) {
      graphs.draw(stem, [&] {
        return dot_text(prune(call_graph_of(profile)), "functions traced by Dynamo: " + stem);
      });
    });
    graphs.finish();
  }

  const OutputDirectory& directory_;
  const Analysis& analysis_;
  const Attribution& attribution_;
  Terminal& terminal_;
  const OutputOptions& options_;
  std::string dot_;  // the program that draws call graphs; "": none are drawn
  std::optional<OutputDirectory> compiles_;
  std::string drawn_;  // the first call graph, by its stem
  std::size_t generated_ = 0;
  std::string generated_page_;
  std::optional<Error> first_error_;
};

}  // namespace

void warn_of_losses(const Recording& recording, Terminal& terminal) {
  for (const std::string& sentence : recording.damage())
    terminal.line("warning: " + escape_terminal(sentence));
  // A recorder that was killed leaves whole chunks behind: nothing is damaged.
  if (!recording.complete())
    terminal.line("warning: the recording has no end mark: what was recorded last may be missing");
}

std::string recording_path(const std::string& directory_or_file) {
  struct stat found = {};
  if (stat(directory_or_file.c_str(), &found) == 0 && S_ISDIR(found.st_mode))
    return directory_or_file + "/" + kRecordingName;
  return directory_or_file;
}

Result<void> write_outputs(const OutputDirectory& directory, UniqueFd recording_file,
                           const OutputOptions& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(auto recording,
                   recording::open_fd(std::move(recording_file), recording_path(directory.path())));
  warn_of_losses(*recording, terminal);
  const Attribution attribution(*recording);
  const Analysis analysis(attribution, options.cpu_only);
  Outputs outputs(directory, analysis, terminal, options);
  // The report comes first: the rest can take ten times as long.
  const std::string report = outputs.write_report();
  Result<void> printed;
  if (options.print_report) printed = print_out(report);
  terminal.progress("writing profiles and traces");
  outputs.write_files();
  terminal.clear_progress();

  const std::string shown = escape_terminal(directory.path());
  terminal.line(fmt::format("Wrote {}/", shown));
  terminal.line(fmt::format("  report.txt        less {}/report.txt", shown));
  terminal.line("  report.html       the same with a timeline and a flame graph, for a browser");
  terminal.line("  trace.json.gz     drop it on https://ui.perfetto.dev or https://speedscope.app");
  if (CompileIndex first = outputs.first_sampled(); first != kNoCompile) {
    const std::size_t compiles = attribution.compiles().size();
    const std::string stem = attribution.file_stem(first);
    terminal.line(fmt::format("  compiles/         {} {}: snakeviz {}/compiles/{}.profile",
                              compiles, compiles == 1 ? "compile" : "compiles", shown, stem));
    if (!outputs.drawn().empty())
      terminal.line(fmt::format("                    call graph: {}/compiles/{}.svg", shown,
                                outputs.drawn()));
    else if (!options.call_graphs)
      terminal.line(
          fmt::format("                    call graph: dynprof-bpf export {} -f svg "
                      "--compile {} -o FILE.svg",
                      shown, attribution.label(first)));
  }
  if (outputs.generated() > 0)
    terminal.line(fmt::format("  generated/        {} files of code that torch made, by trace id",
                              outputs.generated()));
  if (!outputs.generated_page().empty())
    terminal.line(fmt::format("                    a compile on one page: {}/generated/{}", shown,
                              outputs.generated_page()));
  terminal.line(fmt::format("  later: dynprof-bpf report {}  (or export, on any machine)", shown));
  if (outputs.first_error()) return *outputs.first_error();
  if (!printed) {
    Error failure = printed.error();
    failure.hint = fmt::format("the report is in {}/report.txt", shown);
    return failure;
  }
  return {};
}

}  // namespace dynprof
