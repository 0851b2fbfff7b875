// `record`, and the verb-less main job: attach, sample until told to stop, write the directory.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "symbolizer/base/amounts.h"
#include "symbolizer/base/text.h"
#include "user/cli/commands.h"
#include "user/cli/gpu_question.h"
#include "user/cli/launch.h"
#include "user/cli/output_directory.h"
#include "user/cli/outputs.h"
#include "user/cli/stop_signals.h"
#include "user/cli/terminal.h"
#include "user/cli/without_root.h"
#include "user/preflight/capabilities.h"
#include "user/session/session.h"
#include "user/session/stuck_watch.h"
#include "user/target/descriptor_limit.h"
#include "user/target/reading_process.h"

namespace dynprof {
namespace {

std::string default_directory(const std::string& what) {
  time_t now = time(nullptr);
  tm local = {};
  localtime_r(&now, &local);
  return fmt::format("dynprof-{}-{:04}{:02}{:02}-{:02}{:02}{:02}", what, local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec);
}

std::string named(const SessionOptions& options) {
  return options.all ? "all" : std::to_string(options.targets[0]);
}

std::string progress_text(const SessionStatus& status) {
  return fmt::format("{} | {} samples, {} in compiles, {} lost | {} {} | {}",
                     format_seconds(static_cast<double>(status.elapsed_ns) / 1e9),
                     format_count(status.samples), format_count(status.in_compile),
                     format_count(status.lost), status.processes,
                     status.processes == 1 ? "process" : "processes", format_bytes(status.bytes));
}

struct Recorded {
  SessionStatus status;
  std::string reason;
};

Result<Recorded> record(const CommandLine& line, Terminal& terminal,
                        const OutputDirectory& directory, Session& session,
                        std::optional<LaunchedCommand>& launched) {
  ASSIGN_OR_RETURN(UniqueFd file, directory.plain_file(kRecordingName));
  ASSIGN_OR_RETURN(auto writer, RecordingWriter::create(std::move(file), session.meta()));
  TRY(session.attach());
  if (launched) TRY(launched->release());
  const std::vector<std::string>& command = line.record.command;
  const SessionOptions& options = line.record.session;
  terminal.line(fmt::format(
      "Sampling {} {} times a second{}. {}",
      options.all       ? "all processes"
      : command.empty() ? fmt::format("process {}", options.targets[0])
                        : escape_terminal(command[0]),
      options.frequency_hz,
      options.duration_ns
          ? fmt::format(" for {}", format_seconds(static_cast<double>(options.duration_ns) / 1e9))
          : "",
      "Press Control-C to stop and see the report."));
  Recorded recorded;
  ASSIGN_OR_RETURN(recorded.status, session.run(*writer));
  recorded.reason = session.trailer().reason;
  return recorded;
}

// A thread waits in the kernel for a target that does not answer, so the program cannot end normally.
[[noreturn]] void end_stuck(const std::string& sentence, const OutputDirectory* output) {
  Error stuck = error(sentence + ": the recording ends here");
  if (output != nullptr)
    stuck.hint = fmt::format("what was recorded can be read: dynprof-bpf report {}",
                             escape_terminal(output->path()));
  print_error(stuck);
  ::_exit(stuck.exit_code);
}

Error whole_all_the_same(Error failure, const OutputDirectory& directory) {
  if (failure.hint.empty())
    failure.hint =
        fmt::format("the recording is complete; after fixing this, run: dynprof-bpf report {}",
                    escape_terminal(directory.path()));
  return failure;
}

}  // namespace

int run_record(const CommandLine& line, const std::string& shown_command) {
  const RecordOptions& options = line.record;
  Terminal terminal(line.quiet);
  if (auto allowed = check_may_record(shown_command); !allowed) return fail(allowed.error());

  StopSignals signals;
  std::optional<LaunchedCommand> launched;
  SessionOptions session_options = options.session;
  if (!options.command.empty()) {
    auto started = LaunchedCommand::start(options.command);
    if (!started) return fail(started.error());
    launched.emplace(std::move(*started));
    session_options.targets = {launched->pid()};
    session_options.launched = true;
    session_options.command = options.command;
  }
  raise_descriptor_limit();
  SessionHooks hooks;
  hooks.stop_requested = StopSignals::requested;
  const OutputDirectory* output = nullptr;
  hooks.disk_is_nearly_full = [&] { return output && output->disk_is_nearly_full(); };
  hooks.progress = [&](const SessionStatus& status) { terminal.progress(progress_text(status)); };
  hooks.naming = [&](const std::string& path) {
    terminal.progress("naming the frames of " + escape_terminal(path));
  };
  hooks.note = [&](const std::string& sentence) { terminal.line("note: " + sentence); };

  std::atomic<const OutputDirectory*> stuck_output{nullptr};
  std::optional<StuckWatch> watch(std::in_place, [&](const std::string& sentence) {
    end_stuck(sentence, stuck_output.load());
  });
  ReadingProcess::of_program().prepare();
  if (!line.quiet && asked_to_load_library(session_options))
    session_options.gpu.mode = GpuMode::kOn;
  auto session = Session::prepare(session_options, hooks);
  if (!session) return fail(session.error());
  auto directory = OutputDirectory::create(
      options.directory.empty() ? default_directory(named(session_options)) : options.directory);
  if (!directory) return fail(directory.error());
  output = &*directory;
  stuck_output = output;

  auto recorded = record(line, terminal, *directory, **session, launched);
  terminal.clear_progress();
  if (!recorded) {
    print_error(recorded.error());
    if (launched && launched->pid()) launched->wait();
    return recorded.error().exit_code;
  }
  // As perf does: Control-C is meant for the command too. At the end of -d it runs on.
  if (launched && recorded->reason == "interrupted") launched->terminate();
  session->reset();  // BPF programs and maps are gone before the outputs are made
  watch.reset();
  ReadingProcess::of_program().end();
  StopSignals::end_at_once(true);

  terminal.line(fmt::format(
      "Captured {} samples ({} lost) in {}: {}.", format_count(recorded->status.samples),
      format_count(recorded->status.lost),
      format_seconds(static_cast<double>(recorded->status.elapsed_ns) / 1e9), recorded->reason));
  if (recorded->status.samples == 0)
    terminal.line("note: no samples: the target was never on a CPU");
  OutputOptions output_options;
  output_options.call_graphs = options.call_graphs;
  output_options.decompile.python = options.decompiler;
  output_options.cpu_only = options.cpu_only;
  output_options.user_packages = options.session.user_packages;
  output_options.max_trace_bytes = options.max_trace_bytes;
  output_options.print_report = options.print_report;
  auto file = directory->readable(kRecordingName);
  if (!file) return fail(file.error());
  auto status = write_without_root(*directory, terminal, [&] {
    auto written = write_outputs(*directory, std::move(*file), output_options, terminal);
    return written ? 0 : fail(whole_all_the_same(written.error(), *directory));
  });
  if (!status) return fail(whole_all_the_same(status.error(), *directory));
  if (*status != 0) return *status;
  StopSignals::end_at_once(false);  // Control-C is the command's again: we wait for it
  return launched ? launched->wait() : 0;
}

}  // namespace dynprof
