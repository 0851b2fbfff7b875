#include "user/cli/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <string_view>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/generated.h"
#include "symbolizer/base/gzip.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/callgraph.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/compiles_json.h"
#include "symbolizer/export/dynamo_pstats.h"
#include "symbolizer/export/pstats.h"
#include "symbolizer/profile/folded_recording.h"
#include "symbolizer/report/report.h"

namespace dynprof {
namespace {

// One directory's worth of files; remembers the first failure and goes on.
class Outputs {
 public:
  Outputs(const OutputDirectory& directory, const Attribution& attribution, Terminal& terminal,
          bool cpu_only)
      : directory_(directory),
        attribution_(attribution),
        folded_(attribution, cpu_only),
        traced_(attribution),
        terminal_(terminal) {}

  void write(const OutputOptions& options) {
    if (first_sampled() != kNoCompile || any_traced()) {
      auto made = directory_.subdirectory("compiles");
      if (made)
        compiles_.emplace(std::move(*made));
      else
        failed(made.error());
    }
    write_file(directory_, "compiles.json", compiles_json(attribution_, folded_.counts()));
    write_profiles();
    write_dynamo_profiles();
    write_traces();
    write_generated_code();
    bool graphs = options.call_graphs && compiles_ && write_call_graphs();
    ReportOptions report;
    report_ = render_report(folded_, report);
    if (!graphs) {  // the two tables stand in for the pictures
      report.tables = true;
      write_file(directory_, "report.txt", render_report(folded_, report));
    } else {
      write_file(directory_, "report.txt", report_);
    }
  }

  // Those without samples have no files of their own.
  CompileIndex first_sampled() const {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (attribution_.compiles()[i].samples > 0) return i;
    return kNoCompile;
  }
  const std::string& report() const { return report_; }
  std::size_t generated() const { return generated_; }
  std::size_t call_graphs() const { return call_graphs_; }
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

  // Compiles no sample showed have nothing to draw or to fold.
  template <class Visit>
  void for_each_sampled(const Visit& visit) {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (attribution_.compiles()[i].samples > 0) visit(i, attribution_.file_stem(i));
  }

  void write_profiles() {
    if (!compiles_) return;
    for_each_sampled([&](CompileIndex i, const std::string& stem) {
      write_file(*compiles_, stem + ".profile", pstats_bytes(folded_.of(i), folded_.functions()));
    });
  }

  bool any_traced() const {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (traced_.of(i)) return true;
    return false;
  }

  template <class Visit>
  void for_each_traced(const Visit& visit) {
    for (CompileIndex i = 0; i < attribution_.compiles().size(); i++)
      if (const DynamoProfile* profile = traced_.of(i))
        visit(*profile, attribution_.file_stem(i) + ".dynamo");
  }

  void write_dynamo_profiles() {
    if (!compiles_) return;
    for_each_traced([&](const DynamoProfile& profile, const std::string& stem) {
      write_file(*compiles_, stem + ".profile", dynamo_pstats_bytes(profile));
    });
  }

  void write_traces() {
    std::vector<TraceTarget> targets;
    targets.push_back({{}, [this]() -> Result<std::unique_ptr<ByteSink>> {
                         ASSIGN_OR_RETURN(auto file, directory_.file("trace.json.gz"));
                         return make_gzip_sink(std::move(file));
                       }});
    if (compiles_) {
      for_each_sampled([&](CompileIndex i, const std::string& stem) {
        targets.push_back({{i}, [this, stem]() -> Result<std::unique_ptr<ByteSink>> {
                             ASSIGN_OR_RETURN(auto file, compiles_->file(stem + ".trace.json"));
                             return std::unique_ptr<ByteSink>(std::move(file));
                           }});
      });
    }
    if (auto done = write_chrome_traces(attribution_, std::move(targets)); !done)
      failed(done.error());
  }

  // Names and bytes are the target's: each file is new, in a directory of ours, and nothing is run.
  void write_generated_code() {
    Generated generated(attribution_);
    if (generated.files().empty()) return;
    auto top = directory_.subdirectory("generated");
    if (!top) return failed(top.error());
    std::map<std::string, OutputDirectory> folders;
    const Tables& tables = attribution_.recording().tables();
    for (const GeneratedCopy& file : generated.files()) {
      auto folder = folders.find(file.directory);
      if (folder == folders.end()) {
        auto made = top->subdirectory(sanitize_file_component(file.directory));
        if (!made) {
          failed(made.error());
          continue;
        }
        folder = folders.emplace(file.directory, std::move(*made)).first;
      }
      write_file(folder->second, sanitize_file_component(file.name), tables.blobs[file.body]);
      generated_++;
    }
  }

  // False: no tools, said in one line.
  bool write_call_graphs() {
    const char* path = std::getenv("PATH");
    auto tools = find_callgraph_tools(path ? path : "");
    if (!tools) {
      terminal_.line("note: " + tools.error().what);
      return false;
    }
    CallgraphOptions options;
    options.run_as = owner_behind_sudo();
    bool all = true;
    auto draw = [&](const std::string& stem) {
      terminal_.progress(fmt::format("call graph of {}", stem));
      auto svg = compiles_->plain_file(stem + ".svg");
      if (!svg) return failed(svg.error());
      // By path, which could be another file by now: it is read by a process without our rights.
      std::string profile = fmt::format("{}/{}.profile", compiles_->path(), stem);
      if (auto done = write_callgraph(*tools, profile, svg->get(), options); !done) {
        unlinkat(compiles_->fd(), (stem + ".svg").c_str(), 0);
        terminal_.line(fmt::format("note: no call graph of {}: {}", stem, done.error().what));
        all = false;
        return;
      }
      call_graphs_++;
    };
    for_each_sampled([&](CompileIndex, const std::string& stem) { draw(stem); });
    for_each_traced([&](const DynamoProfile&, const std::string& stem) { draw(stem); });
    terminal_.clear_progress();
    return all;
  }

  const OutputDirectory& directory_;
  const Attribution& attribution_;
  FoldedRecording folded_;
  DynamoProfiles traced_;
  Terminal& terminal_;
  std::optional<OutputDirectory> compiles_;
  std::string report_;
  std::size_t call_graphs_ = 0;
  std::size_t generated_ = 0;
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

Result<void> write_outputs(const OutputDirectory& directory, const OutputOptions& options,
                           Terminal& terminal) {
  ASSIGN_OR_RETURN(auto recording, Recording::open(recording_path(directory.path())));
  warn_of_losses(*recording, terminal);
  terminal.progress("writing profiles and traces");
  Attribution attribution(*recording);
  Outputs outputs(directory, attribution, terminal, options.cpu_only);
  outputs.write(options);
  terminal.clear_progress();
  if (options.print_report) {
    fmt::print("{}", outputs.report());
    std::fflush(stdout);
  }

  const std::string shown = escape_terminal(directory.path());
  terminal.line(fmt::format("Wrote {}/", shown));
  terminal.line(fmt::format("  report.txt        less {}/report.txt", shown));
  terminal.line("  trace.json.gz     drop it on https://ui.perfetto.dev or https://speedscope.app");
  if (CompileIndex first = outputs.first_sampled(); first != kNoCompile) {
    const std::size_t compiles = attribution.compiles().size();
    const std::string stem = attribution.file_stem(first);
    terminal.line(fmt::format("  compiles/         {} {}: snakeviz {}/compiles/{}.profile",
                              compiles, compiles == 1 ? "compile" : "compiles", shown, stem));
    if (outputs.call_graphs())
      terminal.line(fmt::format("                    call graph: {}/compiles/{}.svg", shown, stem));
  }
  if (outputs.generated() > 0)
    terminal.line(fmt::format("  generated/        {} files of code that torch made, by trace id",
                              outputs.generated()));
  terminal.line(fmt::format("  later: dynprof-bpf report {}  (or export, on any machine)", shown));
  if (outputs.first_error()) return *outputs.first_error();
  return {};
}

}  // namespace dynprof
