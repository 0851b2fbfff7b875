// `dump` as text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "symbolizer/attribution/torch_phases.h"
#include "symbolizer/base/amounts.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"
#include "user/cli/cmd_dump.h"
#include "user/cli/terminal.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxThreadName = 40;
constexpr std::size_t kMaxPlace = 60;
constexpr std::size_t kShownPhases = 4;
constexpr std::size_t kShownCallers = 3;

const char* state_text(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'D':
      return "blocked in the kernel";
    case 'T':
    case 't':
      return "stopped";
    case 'S':
    case 'I':
      return "sleeping";
    default:
      return "ended";
  }
}

// The path of an installed file, from its package on: "torch/_dynamo/convert_frame.py", "threading.py".
std::string_view short_path(std::string_view file) {
  for (std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    std::size_t at = file.rfind(folder);
    if (at != std::string_view::npos) return file.substr(at + folder.size());
  }
  constexpr std::string_view kLibrary = "/lib/python3.";
  std::size_t library = file.find(kLibrary);
  if (library == std::string_view::npos) return file;
  std::size_t slash = file.find('/', library + kLibrary.size());
  return slash == std::string_view::npos ? file : file.substr(slash + 1);
}

std::string place(const UserLine& line) {
  std::string text(base_name(line.file));
  if (line.line > 0) text += fmt::format(":{}", line.line);
  if (!line.function.empty()) text += ' ' + line.function;
  return cut(text, kMaxPlace);
}

// Our name of the innermost phase, then torch's names, without those that only mean that a compile is open.
std::string phases_text(const CompileNow& compile) {
  std::vector<std::string_view> names;
  for (const std::string& name : compile.phases) {
    auto phase = find_torch_phase(name);
    bool whole = phase && phase->role != PhaseRole::kNone;
    if (whole) names.clear();
    if (!whole || !compile.phase) names.push_back(name);
  }
  std::string out = compile.phase ? phase_text(*compile.phase) : "";
  std::size_t first = names.size() - std::min(names.size(), kShownPhases);
  if (first != 0) out += " > ...";
  for (std::size_t i = first; i < names.size(); ++i) {
    out += (out.empty() ? "" : " > ") + cut(names[i], kMaxPlace);
  }
  return out;
}

std::string compile_text(const CompileNow& compile) {
  std::string out;
  if (is_valid(compile.id)) {
    out = "compiling " + compile.id.text();
    if (compile.attempt > 0) out += fmt::format(" attempt {}", compile.attempt);
    if (compile.kind && *compile.kind != CompileKind::kForward)
      out += fmt::format(" ({})", *compile.kind == CompileKind::kCompiledAutograd
                                      ? "compiled autograd"
                                      : compile_kind_text(*compile.kind));
    if (compile.seconds) out += " for " + format_seconds(*compile.seconds);
  }
  if (compile.phases.empty()) return out;
  std::string phases = phases_text(compile);
  return out + (out.empty() ? "in " : ", in ") + phases;
}

std::string user_text(const UserCode& code) {
  std::string out;
  if (!code.use) return out;
  switch (*code.use) {
    case LineUse::kTracing:
      out = "tracing ";
      break;
    case LineUse::kGraphEnd:
      out = "the graph ends at ";
      break;
    case LineUse::kRetracing:
      out = "tracing again ";
      break;
    case LineUse::kLowering:
      out = "lowering ";
      break;
  }
  out += place(code.lines.back());
  std::size_t callers = code.lines.size() - 1;
  for (std::size_t i = 0; i < std::min(callers, kShownCallers); ++i) {
    out += (i == 0 ? ", called from " : ", ") + place(code.lines[callers - 1 - i]);
  }
  if (callers > kShownCallers) out += fmt::format(" and {} more", callers - kShownCallers);
  return out;
}

// Broken at spaces into lines of kReportColumns, all but the first indented.
void append_wrapped(std::string& out, std::string_view text) {
  std::string indent;
  while (true) {
    std::size_t width = kReportColumns - indent.size();
    if (display_width(text) <= width) break;
    // Byte positions are at least as many as columns: the last space that surely fits.
    std::size_t space = text.rfind(' ', width);
    if (space == std::string_view::npos || space == 0) space = text.find(' ', width);
    if (space == std::string_view::npos) break;
    out += indent + std::string(text.substr(0, space)) + '\n';
    text.remove_prefix(space + 1);
    indent.assign(4, ' ');
  }
  out += indent + std::string(text) + '\n';
}

void append_header(std::string& out, const ThreadDump& thread, const ProcessDump& dump) {
  std::string text = fmt::format("Thread {}", thread.tid);
  const std::string& name = thread.name.empty() ? thread.comm : thread.name;
  if (!name.empty()) text += fmt::format(" \"{}\"", cut(name, kMaxThreadName));
  text += fmt::format(" {}", state_text(thread.state));
  std::string what = thread.compile ? compile_text(*thread.compile) : std::string();
  if (thread.waits_for_compile_lock) {
    what += what.empty() ? "" : "; ";
    what += "waits for the compile lock";
    if (dump.compile_lock_holder)
      what += fmt::format(", held by thread {}", *dump.compile_lock_holder);
  }
  std::string user = user_text(thread.user_code);
  if (!user.empty()) what += "; " + user;
  if (thread.graph.node != 0)
    what += fmt::format("; node {} of {}", thread.graph.node, thread.graph.count);
  if (!what.empty()) text += ": " + what;
  if (!thread.consistent) text += " (moved while it was read)";
  append_wrapped(out, text);
}

void append_frame(std::string& out, const DumpFrame& frame) {
  constexpr std::size_t kWidth = kReportColumns - 2;
  if (frame.unreadable != Unreadable::kNo) {
    out += fmt::format("  {}\n", unreadable_text(frame.unreadable));
    return;
  }
  std::string line = frame.line > 0 ? fmt::format(":{}", frame.line) : std::string();
  std::string file = cut(short_path(frame.file), kWidth, true);
  std::size_t place = display_width(file) + line.size() + 3;  // with a space and brackets
  std::size_t room = std::max(kWidth / 2, kWidth - std::min(kWidth, place));
  std::string function = cut(frame.function, room);
  std::size_t rest = kWidth - display_width(function) - line.size() - 3;
  out += fmt::format("  {} ({}{})\n", function, truncate_columns(file, rest, true), line);
}

void append_summary(std::string& out, const ProcessDump& dump) {
  out += fmt::format("Process {}: {}\n", dump.pid, cut(dump.command, kReportColumns - 24));
  auto count = [&](auto&& test) {
    return std::count_if(dump.threads.begin(), dump.threads.end(), test);
  };
  auto compiling = count(
      [](const ThreadDump& thread) { return thread.compile && is_valid(thread.compile->id); });
  auto waiting = count([](const ThreadDump& thread) { return thread.waits_for_compile_lock; });
  std::string torch = "no torch";
  if (dump.torch) torch = "torch " + (dump.torch->empty() ? "?" : cut(*dump.torch, 24));
  std::string text = fmt::format("Python {}, {}: {} thread{}", dump.python, torch,
                                 dump.threads.size(), dump.threads.size() == 1 ? "" : "s");
  if (dump.torch)
    text += compiling == 0 ? ", none compiling" : fmt::format(", {} compiling", compiling);
  if (waiting != 0) text += fmt::format(", {} waiting for the compile lock", waiting);
  if (dump.other_threads != 0) text += fmt::format("; {} without Python", dump.other_threads);
  if (dump.elsewhere != 0)
    text += fmt::format("; {} of sub-interpreters, not shown", dump.elsewhere);
  append_wrapped(out, text);
}

}  // namespace

std::string thread_header(const ThreadDump& thread, const ProcessDump& dump) {
  std::string out;
  append_header(out, thread, dump);
  return out;
}

std::string dump_text(const ProcessDump& dump) {
  std::string out;
  append_summary(out, dump);
  std::size_t shown = std::min(dump.threads.size(), kDumpedThreads);
  for (std::size_t i = 0; i < shown; ++i) {
    const ThreadDump& thread = dump.threads[i];
    out += '\n';
    append_header(out, thread, dump);
    for (const DumpFrame& frame : thread.frames) append_frame(out, frame);
    if (thread.frames.empty()) out += "  no Python frame\n";
    if (thread.truncated) out += fmt::format("  more than {} frames\n", thread.frames.size());
  }
  std::size_t more = dump.threads.size() - shown + dump.threads_dropped;
  if (more != 0) out += fmt::format("\n{} more threads; --json has up to 4,096\n", more);
  return out;
}

}  // namespace dynprof
