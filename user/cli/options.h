// What the command line asked for, as plain data. The only file that knows the parser is options.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/gpu/gpu_options.h"
#include "user/kernel/perf_event.h"

namespace dynprof {

struct RecordOptions {
  std::vector<std::int32_t> pids;
  bool all = false;                  // every process of the machine
  std::vector<std::string> command;  // after "--"
  std::uint32_t frequency_hz = 99;
  std::uint64_t duration_ns = 0;  // 0: until interrupted or the target ends
  std::uint64_t max_bytes = 0;    // of the recording, 0: no limit
  std::string directory;          // "": dynprof-<pid>-<time>
  SamplingEvent event = SamplingEvent::kCpuClock;
  GpuMode gpu = GpuMode::kAuto;
  bool children = true;
  bool passive = false;
  bool watchpoints = true;
  bool direct_map = true;
  bool native = true;
  bool off_cpu = true;
  std::uint64_t off_cpu_threshold_ns = 1'000'000;
  bool cpu_only = false;  // profiles of time on the CPU alone
  bool command_lines = true;
  std::string table_cache;            // "": the default
  std::uint64_t table_bytes = 0;      // 0: the default
  bool call_graphs = true;            // SVG by gprof2dot and dot
  std::uint64_t max_trace_bytes = 0;  // 0: the default
  bool print_report = false;          // the verb-less form prints the report when it is done
};

struct ReportArguments {
  std::string directory;
  std::string compile;  // "0/1", "0/1_1", "backward 0/0"; "": all
  std::string phase;
  std::string sort;
  double percent_limit = 0.5;
  bool children = false;
  bool cpu_only = false;
  bool stdio = false;   // changes nothing
  std::string symbols;  // directory of files to take native names from
};

struct ExportOptions {
  std::string directory;
  std::string format;
  std::string output;
  std::string compile;
  bool cpu_only = false;
  std::uint64_t max_trace_bytes = 0;  // 0: the default
  std::string symbols;
};

struct CompilesOptions {
  std::int32_t pid = 0;
  bool json = false;
  bool times = false;  // compile_times() instead of the compiles
};

struct DumpOptions {
  std::int32_t pid = 0;
  bool json = false;
};

struct TopOptions {
  std::int32_t pid = 0;
  bool batch = false;            // text, also on a terminal
  std::uint64_t iterations = 0;  // 0: until interrupted or the process ends
  std::uint64_t interval_ns = 1'000'000'000;
};

struct DoctorOptions {
  std::int32_t pid = 0;  // 0: none
  bool json = false;
};

enum class Verb { kRecord, kReport, kExport, kCompiles, kDump, kTop, kDoctor, kDone };

struct CommandLine {
  Verb verb = Verb::kDone;  // kDone: --help or --version was answered
  RecordOptions record;
  ReportArguments report;
  ExportOptions exports;
  CompilesOptions compiles;
  DumpOptions dump;
  TopOptions top;
  DoctorOptions doctor;
  bool quiet = false;
  int verbose = 0;
};

// Errors carry exit code 2. Help and version go to stdout.
Result<CommandLine> parse_command_line(int argc, char** argv);

// "30", "30s", "500ms", "2m", "1h": nanoseconds. "64M", "2G": bytes.
Result<std::uint64_t> parse_duration(const std::string& text);
Result<std::uint64_t> parse_size(const std::string& text);

}  // namespace dynprof
