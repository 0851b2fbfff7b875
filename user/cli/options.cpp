#include "user/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "symbolizer/export/export.h"
#include "user/cli/gpu_arguments.h"
#include "user/cli/nearest_word.h"
#include "user/cli/pid_list.h"
#include "user/cli/standard_streams.h"
#include "user/cli/usage_error.h"
#include "version.h"

namespace dynprof {
namespace {

constexpr std::string_view kVerbs[] = {"record",   "report", "export", "compare",
                                       "compiles", "dump",   "top",    "doctor"};

constexpr const char* kDescription =
    "Shows where a live Python process spends its torch.compile time, by trace id.\nTo start:  "
    "sudo dynprof-bpf --pid PID     (Ctrl-C stops it and prints the report)\nWithout a verb, the "
    "options are those of `record`.";

struct RawOptions {
  std::string pid, duration, max_size, max_trace_size, off_cpu_threshold, table_memory;
  std::string from, to, split;
  std::string event = "cpu-clock";
  GpuTexts gpu;
  long long frequency = kDefaultFrequencyHz;
  bool no_children = false, no_native = false, no_watchpoints = false, no_direct_map = false;
  bool no_off_cpu = false;
  bool no_cmdlines = false;
  std::string compiles_pid, dump_pid, dump_every, top_pid, top_interval, doctor_pid;
};

void add_user_code(CLI::App& verb, std::vector<std::string>& packages) {
  verb.add_option("--user-code", packages,
                  "also treat this installed package as user code: transformers; may be repeated")
      ->type_name("PKG")
      ->allow_extra_args(false)
      ->check([](const std::string& name) {
        return name.empty() || name.find('/') != std::string::npos ? "not the name of a package"
                                                                   : "";
      });
}

void add_trace_size(CLI::App& verb, RawOptions& raw) {
  verb.add_option(
          "--max-trace-size", raw.max_trace_size,
          fmt::format("largest chrome trace, uncompressed; above it short slices are merged "
                      "(default {}M)",
                      kMaxTraceBytes / 1'000'000))
      ->type_name("SIZE");
}

Result<void> finish_trace_size(const RawOptions& raw, std::uint64_t& bytes) {
  if (raw.max_trace_size.empty()) return {};
  ASSIGN_OR_RETURN(bytes, parse_size(raw.max_trace_size));
  if (bytes == 0) return usage_error("trace size is zero", "for example --max-trace-size 500M");
  return {};
}

void add_record(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* verb = app.add_subcommand("record", "attach, sample, and write the output directory");
  verb->add_option("-p,--pid", raw.pid, "process to attach to; several as PID,PID")
      ->type_name("PID");
  verb->add_flag("-a,--all", line.record.session.all,
                 "every process of this machine (or pid namespace)");
  verb->add_option("-F,--frequency", raw.frequency,
                   fmt::format("samples per second and CPU (default {})", kDefaultFrequencyHz))
      ->type_name("HZ");
  verb->add_option("-d,--duration", raw.duration, "stop after this long: 30, 30s, 500ms, 2m")
      ->type_name("TIME");
  verb->add_option("-o,--output", line.record.directory,
                   "directory to create (default dynprof-<pid>-<time>)")
      ->type_name("DIR");
  verb->add_option("-e,--event", raw.event, "cpu-clock (default) or cycles")->type_name("EVENT");
  verb->add_option("--max-size", raw.max_size, "stop when the recording is this large: 500M")
      ->type_name("SIZE");
  add_trace_size(*verb, raw);
  add_gpu_options(*verb, raw.gpu);
  verb->add_flag("--no-children", raw.no_children, "do not follow child processes");
  verb->add_flag("--passive", line.record.session.passive,
                 "change nothing in the target: only sample it and read its memory");
  verb->add_flag("--no-watchpoints", raw.no_watchpoints,
                 "no hardware watchpoints, so no exact counts of traced functions");
  verb->add_flag("--no-direct-map", raw.no_direct_map,
                 "read memory by bpf_probe_read_user (slower)");
  verb->add_flag("--count-all-runs", line.record.session.count_all_runs,
                 "count and time runs of compiled regions at any rate; slows fast ones down");
  verb->add_flag("--record-functions", line.record.session.record_functions,
                 "also exact ranges of torch.profiler.record_function; slows compiles down");
  verb->add_flag("--all-user-lines", line.record.session.all_user_lines,
                 "20 readings of user lines a second, however long a compile takes");
  verb->add_flag("--no-native", raw.no_native, "Python frames only, no native or kernel frames");
  verb->add_flag("--no-off-cpu", raw.no_off_cpu, "do not record waits");
  verb->add_option("--off-cpu-threshold", raw.off_cpu_threshold,
                   fmt::format("sum up waits shorter than this (default {}ms)",
                               SessionOptions().off_cpu_threshold_ns / 1'000'000))
      ->type_name("TIME");
  verb->add_flag("--cpu", line.record.cpu_only, "profiles of compiles in CPU time, not wall time");
  verb->add_flag("--no-cmdlines", raw.no_cmdlines, "record program names without command lines");
  verb->add_option(
          "--table-cache", line.record.session.native_limits.cache,
          fmt::format("cache directory for unwind tables (default {})", NativeLimits().cache))
      ->type_name("DIR");
  verb->add_option("--table-memory", raw.table_memory,
                   fmt::format("limit of kernel memory for unwind tables (default {}M)",
                               NativeLimits().table_bytes >> 20))
      ->type_name("SIZE");
  add_user_code(*verb, line.record.session.user_packages);
  verb->add_flag("--svg", line.record.call_graphs, "draw call graphs as well (with Graphviz' dot)");
  verb->add_option("--decompiler", line.record.decompiler,
                   "Python with depyf, to decompile Dynamo's code (auto: that of PATH)")
      ->type_name("PYTHON");
  verb->footer("With -- CMD ARGS..., starts CMD, records it, and exits with its status.");
}

void add_report(CLI::App& app, CommandLine& line) {
  CLI::App* verb = app.add_subcommand("report", "print the report of a recording");
  verb->add_option("dir", line.report.directory, "output directory, or a recording file")
      ->required()
      ->type_name("DIR");
  verb->add_option("--compile", line.report.compile,
                   "only this trace id: 0/1, 0/1_1, 'backward 0/0'; or all of a function: 4")
      ->type_name("ID");
  verb->add_option("--phase", line.report.phase, "only this phase: dynamo, inductor, ...")
      ->type_name("PHASE");
  verb->add_option("-s,--sort", line.report.sort,
                   "comma-separated list of comm, dso, sym, phase, compile")
      ->type_name("KEYS");
  verb->add_option("--percent-limit", line.report.percent_limit,
                   fmt::format("leave out rows below this share (default {})",
                               ReportArguments().percent_limit))
      ->type_name("PERCENT");
  verb->add_flag("--children,!--no-children", line.report.children,
                 "also show the share of samples with the row anywhere on the stack");
  verb->add_flag("--cpu", line.report.cpu_only,
                 "tables of a compile in CPU time, not in wall time");
  verb->add_option("--symbols", line.report.symbols,
                   "directory with files to name native frames, matched by build-id")
      ->type_name("DIR");
  add_user_code(*verb, line.report.user_code);
  verb->add_option(
          "--annotation", line.report.annotation,
          "only samples inside ranges of this name (record_function, NVTX, ITT); NAME*: that "
          "begin so")
      ->type_name("NAME");
  verb->add_flag("--losses", line.report.losses, "list what was lost or is incomplete");
  verb->add_flag("--stdio", line.report.stdio, "ignored, for compatibility with perf");
}

void add_export(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* verb = app.add_subcommand("export", "write a recording in another format");
  verb->add_option("dir", line.exports.directory, "output directory, or a recording file")
      ->required()
      ->type_name("DIR");
  verb->add_option("-f,--format", line.exports.format, "see below")
      ->required()
      ->type_name("FORMAT");
  verb->add_option("-o,--output", line.exports.output, "file to create")
      ->required()
      ->type_name("PATH");
  verb->add_option("--compile", line.exports.compile, "only this trace id")->type_name("ID");
  verb->add_option("--from", raw.from, "chrome: only from this time of the recording on: 10s")
      ->type_name("TIME");
  verb->add_option("--to", raw.to, "chrome: only until then: 20s")->type_name("TIME");
  verb->add_option("--split", raw.split,
                   "chrome: -o DIR, a file per rank and so much time: 30s; rank: per rank")
      ->type_name("TIME");
  verb->add_flag("--cpu", line.exports.cpu_only,
                 "profiles of compiles in CPU time, not in wall time");
  verb->add_option("--symbols", line.exports.symbols,
                   "directory with files to name native frames, matched by build-id")
      ->type_name("DIR");
  add_user_code(*verb, line.exports.user_code);
  add_trace_size(*verb, raw);
  std::string formats = "Formats:\n";
  for (const ExportFormat& format : export_formats())
    formats += fmt::format("  {:<12} {}\n", format.name, format.description);
  verb->footer(formats);
}

void add_compare(CLI::App& app, CommandLine& line) {
  CLI::App* verb = app.add_subcommand("compare", "show what takes more time in a second recording");
  verb->add_option("a", line.compare.a, "output directory or recording file")->required();
  verb->add_option("b", line.compare.b, "output directory or recording file to compare with it")
      ->required();
  verb->add_option("--html", line.compare.html, "also write a page with a differential flame graph")
      ->type_name("FILE");
}

void add_compiles(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* verb = app.add_subcommand("compiles", "list what a process has compiled so far");
  verb->add_option("-p,--pid", raw.compiles_pid, "process to read")->required()->type_name("PID");
  verb->add_flag("--json", line.compiles.json, "all of torch's records, as JSON");
  verb->add_flag("--times", line.compiles.times, "torch's compile_times() instead of the table");
  verb->footer("Reads the memory of the process, which is not stopped. Nothing is recorded.");
}

void add_dump(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* verb = app.add_subcommand("dump", "show what each thread of a process is doing now");
  verb->add_option("-p,--pid", raw.dump_pid, "process to read")->required()->type_name("PID");
  verb->add_flag("--json", line.dump.json, "as JSON");
  verb->add_option("--every", raw.dump_every,
                   "again and again, with whether compiles have advanced: 5s; until Ctrl-C or the "
                   "process ends")
      ->type_name("TIME");
  verb->add_option("-n,--iterations", line.dump.iterations, "stop after so many")
      ->check(CLI::PositiveNumber)
      ->needs("--every")
      ->type_name("N");
  verb->footer("Reads the memory of the process, which is not stopped. Nothing is recorded.");
}

void add_top(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* verb = app.add_subcommand("top", "show what a process compiles, once a second");
  verb->add_option("-p,--pid", raw.top_pid, "process to read")->required()->type_name("PID");
  verb->add_flag("-b,--batch", line.top.batch,
                 "print text, not a screen; the default on a pipe and a dumb terminal");
  verb->add_option("-n,--iterations", line.top.iterations, "stop after this many readings")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  verb->add_option("-d,--delay", raw.top_interval, "time between two readings (default 1s)")
      ->type_name("TIME");
  verb->add_flag("--functions", line.top.functions,
                 "sample the process from the start: CPU and waits by Python function");
  add_user_code(*verb, line.top.user_packages);
  verb->footer(
      "Keys: h shows them, q quits.\nReads the memory of the process, which is not stopped. "
      "Nothing is recorded.");
}

void add_doctor(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* verb =
      app.add_subcommand("doctor", "check what works on this machine, and how to fix the rest");
  verb->add_option("-p,--pid", raw.doctor_pid, "also check this process")->type_name("PID");
  verb->add_flag("--json", line.doctor.json, "as JSON");
  verb->footer("Changes nothing. Exit status 3: a recording would not work.");
}

Result<void> finish_record(CommandLine& line, const RawOptions& raw) {
  if (!raw.pid.empty()) {
    ASSIGN_OR_RETURN(line.record.session.targets, parse_pids(raw.pid));
  }
  const int wanted =
      !line.record.session.targets.empty() + !line.record.command.empty() + line.record.session.all;
  if (wanted != 1)
    return usage_error(
        wanted == 0 ? "nothing to record" : "--pid, --all and -- CMD are mutually exclusive",
        "dynprof-bpf --pid PID, dynprof-bpf --all, or dynprof-bpf record -- python train.py");
  if (line.record.session.all && raw.no_children)
    return usage_error("--all and --no-children are mutually exclusive",
                       "dynprof-bpf --all, or dynprof-bpf --no-children --pid PID");
  if (raw.frequency < 1 || raw.frequency > 1'000'000)
    return usage_error(fmt::format("frequency {} is out of range", raw.frequency),
                       "use 1 to 1000000 samples per second, for example -F 999");
  if (std::uint64_t limit = max_sample_rate();
      limit && static_cast<std::uint64_t>(raw.frequency) > limit)
    return usage_error(
        fmt::format(
            "frequency {} is above this kernel's limit of {} (kernel.perf_event_max_sample_rate)",
            raw.frequency, limit),
        fmt::format("-F {}, or sudo sysctl kernel.perf_event_max_sample_rate={}", limit,
                    raw.frequency));
  line.record.session.frequency_hz = static_cast<std::uint32_t>(raw.frequency);
  if (!raw.duration.empty()) {
    ASSIGN_OR_RETURN(line.record.session.duration_ns, parse_duration(raw.duration));
    if (line.record.session.duration_ns == 0)
      return usage_error(fmt::format("duration '{}' is zero", raw.duration), "for example -d 30s");
  }
  if (!raw.off_cpu_threshold.empty()) {
    ASSIGN_OR_RETURN(line.record.session.off_cpu_threshold_ns,
                     parse_duration(raw.off_cpu_threshold));
  }
  if (!raw.max_size.empty()) {
    ASSIGN_OR_RETURN(line.record.session.max_bytes, parse_size(raw.max_size));
  }
  if (raw.event == "cycles")
    line.record.session.event = SamplingEvent::kCycles;
  else if (raw.event != "cpu-clock")
    return usage_error(fmt::format("unknown event '{}'", raw.event), "-e cpu-clock or -e cycles");
  TRY(finish_gpu_options(raw.gpu, line.record.session));
  line.record.session.children = !raw.no_children;
  line.record.session.watchpoints = !raw.no_watchpoints;
  line.record.session.direct_map = !raw.no_direct_map;
  line.record.session.native = !raw.no_native;
  line.record.session.off_cpu = !raw.no_off_cpu;
  line.record.session.command_lines = !raw.no_cmdlines;
  if (!raw.table_memory.empty()) {
    ASSIGN_OR_RETURN(const std::uint64_t bytes, parse_size(raw.table_memory));
    if (bytes > 0) line.record.session.native_limits.table_bytes = bytes;
  }
  if (line.record.session.native_limits.cache.empty())
    line.record.session.native_limits.cache = NativeLimits().cache;
  TRY(finish_trace_size(raw, line.record.max_trace_bytes));
  return {};
}

Result<void> check_format(const std::string& wanted) {
  std::vector<std::string> names;
  for (const ExportFormat& format : export_formats()) {
    if (wanted == format.name) return {};
    names.emplace_back(format.name);
  }
  std::string suggestion = nearest(wanted, names);
  return usage_error(fmt::format("unknown format '{}'", wanted),
                     suggestion.empty() ? fmt::format("formats are {}", fmt::join(names, ", "))
                                        : fmt::format("did you mean {}?", suggestion));
}

Error explain(const CLI::App& app, const CLI::ParseError& failure,
              const std::vector<std::string>& words) {
  std::vector<std::string> known;
  const auto verbs = app.get_subcommands();
  const CLI::App* scope = verbs.empty() ? &app : verbs.front();
  for (const CLI::Option* option : scope->get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  if (failure.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    for (const std::string& word : words) {
      if (word.size() < 2 || word[0] != '-') continue;
      std::string name = word.substr(0, word.find('='));
      if (name.rfind("--", 0) == 0 && std::find(known.begin(), known.end(), name) == known.end()) {
        std::string suggestion = nearest(name, known);
        return usage_error(fmt::format("unknown option '{}'", name),
                           suggestion.empty() ? "dynprof-bpf --help"
                                              : fmt::format("did you mean {}?", suggestion));
      }
    }
  }
  return usage_error(failure.what(), verbs.empty()
                                         ? "dynprof-bpf --help"
                                         : fmt::format("dynprof-bpf {} --help", scope->get_name()));
}

}  // namespace

Result<CommandLine> parse_command_line(int argc, char** argv) {
  CommandLine line;
  RawOptions raw;
  std::vector<std::string> words;
  int i = 1;
  for (; i < argc && std::string_view(argv[i]) != "--"; i++) words.emplace_back(argv[i]);
  for (i++; i < argc; i++) line.record.command.emplace_back(argv[i]);
  bool has_command = !line.record.command.empty();

  CLI::App app(kDescription, "dynprof-bpf");
  app.set_version_flag("-V,--version", std::string("dynprof-bpf ") + DYNPROF_VERSION);
  app.add_flag("-q,--quiet", line.quiet, "print only errors and data");
  app.add_flag("-v,--verbose", line.verbose, "print more messages; repeat for more");
  app.require_subcommand(0, 1);
  app.fallthrough();  // -q and -v may follow the verb
  add_record(app, line, raw);
  add_report(app, line);
  add_export(app, line, raw);
  add_compare(app, line);
  add_compiles(app, line, raw);
  add_dump(app, line, raw);
  add_top(app, line, raw);
  add_doctor(app, line, raw);

  if (words.empty() && !has_command) {
    TRY(print_out(app.help()));
    return usage_error("no process given", "sudo dynprof-bpf --pid PID");
  }
  // The verb-less form is `record` that prints its report.
  auto is_verb = [](const std::string& word) {
    return std::find(std::begin(kVerbs), std::end(kVerbs), word) != std::end(kVerbs);
  };
  bool any_verb = std::any_of(words.begin(), words.end(), is_verb);
  bool asks_help = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "-h" || word == "--help" || word == "-V" || word == "--version";
  });
  if (!any_verb && !asks_help) {
    if (!words.empty() && words[0][0] != '-') {
      std::string suggestion =
          nearest(words[0], std::vector<std::string>(std::begin(kVerbs), std::end(kVerbs)));
      return usage_error(fmt::format("unknown verb '{}'", words[0]),
                         suggestion.empty()
                             ? "verbs are record, report, export, compare, compiles, "
                               "dump, top and doctor; dynprof-bpf --help"
                             : fmt::format("did you mean {}?", suggestion));
    }
    words.insert(words.begin(), "record");
    line.record.print_report = true;
  }

  std::vector<std::string> reversed(words.rbegin(),
                                    words.rend());  // CLI11 takes them from the back
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const auto verbs = app.get_subcommands();
    TRY(print_out(verbs.empty() ? app.help() : verbs.front()->help()));
    return line;
  } catch (const CLI::CallForVersion&) {
    TRY(print_out(fmt::format("dynprof-bpf {}\n", DYNPROF_VERSION)));
    return line;
  } catch (const CLI::ParseError& failure) {
    return explain(app, failure, words);
  }
  const auto verbs = app.get_subcommands();
  if (verbs.empty()) return usage_error("no verb given", "dynprof-bpf --help");
  std::string verb = verbs.front()->get_name();
  if (has_command && verb != "record")
    return usage_error(fmt::format("-- CMD cannot be used with {}", verb), "use it with record");
  if (verb == "record") {
    line.verb = Verb::kRecord;
    TRY(finish_record(line, raw));
  } else if (verb == "compare") {
    line.verb = Verb::kCompare;
  } else if (verb == "compiles") {
    line.verb = Verb::kCompiles;
    ASSIGN_OR_RETURN(line.compiles.pid, one_pid(raw.compiles_pid, "compiles"));
  } else if (verb == "dump") {
    line.verb = Verb::kDump;
    ASSIGN_OR_RETURN(line.dump.pid, one_pid(raw.dump_pid, "dump"));
    if (!raw.dump_every.empty()) {
      ASSIGN_OR_RETURN(line.dump.every_ns, parse_interval(raw.dump_every, "--every"));
    }
  } else if (verb == "top") {
    line.verb = Verb::kTop;
    ASSIGN_OR_RETURN(line.top.pid, one_pid(raw.top_pid, "top"));
    if (!raw.top_interval.empty()) {
      ASSIGN_OR_RETURN(line.top.interval_ns, parse_interval(raw.top_interval, "-d"));
    }
  } else if (verb == "doctor") {
    line.verb = Verb::kDoctor;
    if (!raw.doctor_pid.empty()) {
      ASSIGN_OR_RETURN(line.doctor.pid, one_pid(raw.doctor_pid, "doctor"));
    }
  } else {
    line.verb = verb == "report" ? Verb::kReport : Verb::kExport;
    if (line.verb == Verb::kExport) {
      TRY(check_format(line.exports.format));
      TRY(finish_trace_size(raw, line.exports.max_trace_bytes));
      TRY(finish_window({raw.from, raw.to, raw.split}, line.exports));
    }
  }
  return line;
}

}  // namespace dynprof
