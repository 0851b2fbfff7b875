// `compare`: two recordings beside each other, without root and without their targets.
#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/base/text.h"
#include "symbolizer/compare/compare.h"
#include "symbolizer/compare/compare_page.h"
#include "symbolizer/export/export.h"
#include "symbolizer/recording/open_fd.h"
#include "user/cli/commands.h"
#include "user/cli/outputs.h"
#include "user/cli/standard_streams.h"
#include "user/cli/terminal.h"
#include "user/cli/usage_error.h"
#include "user/cli/without_root.h"
#include "user/privileges/leave_root.h"

namespace dynprof {
namespace {

// Opened with the rights we were started with; read without them.
struct OpenFiles {
  UniqueFd a, b;
};

Result<OpenFiles> open_both(const CompareOptions& options) {
  OpenFiles files;
  ASSIGN_OR_RETURN(files.a, recording::open_for_reading(recording_path(options.a)));
  ASSIGN_OR_RETURN(files.b, recording::open_for_reading(recording_path(options.b)));
  return files;
}

Result<std::unique_ptr<Recording>> read_one(UniqueFd file, const std::string& where,
                                            Terminal& terminal) {
  ASSIGN_OR_RETURN(auto recording, recording::open_fd(std::move(file), recording_path(where)));
  warn_of_losses(*recording, terminal);
  return recording;
}

// `output`: the page's file, open already; -1: it is not.
int compare_files(OpenFiles files, const CompareOptions& options, int output, Terminal& terminal) {
  auto first = read_one(std::move(files.a), options.a, terminal);
  if (!first) return fail(first.error());
  auto second = read_one(std::move(files.b), options.b, terminal);
  if (!second) return fail(second.error());
  const Attribution of_a(**first), of_b(**second);
  const Analysis a(of_a), b(of_b);
  const Comparison comparison = compare(a, b);
  if (auto printed = print_out(render_comparison(comparison, options.a, options.b)); !printed)
    return fail(printed.error());
  if (options.html.empty()) return 0;
  auto sink = open_target({options.html, output});
  if (!sink) return fail(sink.error());
  if (auto done = write_comparison(a, b, comparison, options.a, options.b, **sink); !done)
    return fail(done.error());
  terminal.line(fmt::format("wrote {}", escape_terminal(options.html)));
  return 0;
}

}  // namespace

int run_compare(const CommandLine& line) {
  Terminal terminal(line.quiet);
  const CompareOptions& options = line.compare;
  if (options.html == "-")
    return fail(usage_error("--html - would mix the page with the table on stdout",
                            "dynprof-bpf compare A B --html page.html"));
  auto files = open_both(options);
  if (!files) return fail(files.error());
  if (!options.html.empty() && is_plain_root()) {
    auto status = write_file_without_root(options.html, Keep::kNothing, [&](int output) {
      return compare_files(std::move(*files), options, output, terminal);
    });
    return status ? *status : fail(status.error());
  }
  std::string note;
  if (auto left = leave_root(note); !left) return fail(left.error());
  if (!note.empty()) terminal.line("note: " + note);
  return compare_files(std::move(*files), options, -1, terminal);
}

}  // namespace dynprof
