// What the command line asked for, as plain data. The only file that knows the parser is options.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/report/report.h"
#include "user/session/session.h"

namespace dynprof {

struct RecordOptions {
  SessionOptions session;            // its targets: those of --pid
  std::vector<std::string> command;  // after "--"
  std::string directory;             // "": dynprof-<pid>-<time>
  bool cpu_only = false;             // profiles of time on the CPU alone
  bool call_graphs = false;          // SVG by Graphviz' dot
  std::string decompiler;            // a Python with depyf; "": python3.N of PATH, "none": none
  std::uint64_t max_trace_bytes = kMaxTraceBytes;
  bool print_report = false;  // the verb-less form prints the report when it is done
};

struct ReportArguments {
  std::string directory;
  std::string compile;  // "0/1", "0/1_1", "backward 0/0", "4"; "": all
  std::string phase;
  std::string sort;
  double percent_limit = ReportOptions().percent_limit;
  bool children = false;
  bool cpu_only = false;
  bool losses = false;                 // what was lost in full
  bool stdio = false;                  // changes nothing
  std::string symbols;                 // directory of files to take native names from
  std::vector<std::string> user_code;  // packages, see ReportOptions
  std::string annotation;              // see ReportOptions
};

struct ExportOptions {
  std::string directory;
  std::string format;
  std::string output;
  std::string compile;
  bool cpu_only = false;
  std::uint64_t max_trace_bytes = kMaxTraceBytes;
  std::string symbols;
  std::vector<std::string> user_code;  // packages, of html
  TraceWindow window;                  // of a chrome trace
  std::uint64_t split_ns = 0;          // into parts of this length; 0: one file
  bool split_ranks = false;            // into a file for each rank alone
};

struct CompareOptions {
  std::string a, b;  // output directories, or recording files
  std::string html;  // file to create; "": none
};

struct CompilesOptions {
  std::int32_t pid = 0;
  bool json = false;
  bool times = false;  // compile_times() instead of the compiles
};

struct DumpOptions {
  std::int32_t pid = 0;
  bool json = false;
  std::uint64_t every_ns = 0;    // again and again; 0: once
  std::uint64_t iterations = 0;  // 0: until interrupted or the process ends
};

struct TopOptions {
  std::int32_t pid = 0;
  bool batch = false;            // text, also on a terminal
  std::uint64_t iterations = 0;  // 0: until interrupted or the process ends
  std::uint64_t interval_ns = 1'000'000'000;
  bool functions = false;                  // sampled from the start
  std::vector<std::string> user_packages;  // installed, and the user's own code all the same
};

struct DoctorOptions {
  std::int32_t pid = 0;  // 0: none
  bool json = false;
};

enum class Verb { kRecord, kReport, kExport, kCompare, kCompiles, kDump, kTop, kDoctor, kDone };

struct CommandLine {
  Verb verb = Verb::kDone;  // kDone: --help or --version was answered
  RecordOptions record;
  ReportArguments report;
  ExportOptions exports;
  CompareOptions compare;
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
// 100 ms to 1 h; `option` is named where it is not: "--every".
Result<std::uint64_t> parse_interval(const std::string& text, const char* option);
// --from, --to and --split, each "" where it was not given.
struct WindowTexts {
  const std::string &from, &to, &split;
};
Result<void> finish_window(const WindowTexts& texts, ExportOptions& exports);
Result<std::uint64_t> parse_size(const std::string& text);

}  // namespace dynprof
