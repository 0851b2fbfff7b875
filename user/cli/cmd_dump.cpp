// `dump`: where each thread of a process stands and what it compiles, at one moment.
#include "user/cli/cmd_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "symbolizer/base/text.h"
#include "user/cli/commands.h"
#include "user/cli/dump_again.h"
#include "user/cli/end_stuck.h"
#include "user/cli/standard_streams.h"
#include "user/cli/terminal.h"
#include "user/cli/top_screen.h"
#include "user/preflight/capabilities.h"
#include "user/session/stuck_watch.h"
#include "user/target/process.h"
#include "user/target/state_word.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

// ---- JSON ----------------------------------------------------------------------------------------

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(backslash_escaped(text));
}
Json line_or_null(std::int32_t line) { return line > 0 ? Json(line) : Json(nullptr); }

Json frame_json(const DumpFrame& frame) {
  if (frame.unreadable != Unreadable::kNo) {
    return {{"function", unreadable_text(frame.unreadable)},
            {"file", nullptr},
            {"line", nullptr},
            {"first_line", nullptr}};
  }
  return {{"function", backslash_escaped(frame.function)},
          {"file", backslash_escaped(frame.file)},
          {"line", line_or_null(frame.line)},
          {"first_line", frame.first_line}};
}

Json user_lines_json(const std::vector<UserLine>& lines) {
  Json out = Json::array();
  for (const UserLine& line : lines) {
    out.push_back({{"function", text_or_null(line.function)},
                   {"file", backslash_escaped(line.file)},
                   {"line", line_or_null(line.line)}});
  }
  return out;
}

Json compile_json(const CompileNow& compile, const UserCode& code, const GraphPosition& graph) {
  Json out;
  out["trace_id"] = is_valid(compile.id) ? Json(compile.id.text()) : Json(nullptr);
  out["attempt"] = compile.attempt >= 0 ? Json(compile.attempt) : Json(nullptr);
  out["kind"] = compile.kind ? Json(compile_kind_text(*compile.kind)) : Json(nullptr);
  out["seconds"] = compile.seconds ? Json(std::round(*compile.seconds * 1e6) / 1e6) : Json(nullptr);
  out["phase"] = compile.phase ? Json(phase_text(*compile.phase)) : Json(nullptr);
  out["torch_phases"] = Json::array();
  for (const std::string& name : compile.phases) {
    out["torch_phases"].push_back(backslash_escaped(name));
  }
  out["user_code_is"] = code.use ? Json(line_use_text(*code.use)) : Json(nullptr);
  out["user_code"] = user_lines_json(code.lines);
  out["graph_node"] = graph.node != 0 ? Json(graph.node) : Json(nullptr);
  out["graph_nodes"] = graph.node != 0 ? Json(graph.count) : Json(nullptr);
  return out;
}

Json thread_json(const ThreadDump& thread) {
  Json out;
  out["tid"] = thread.tid;
  out["name"] = text_or_null(thread.name);
  out["comm"] = backslash_escaped(thread.comm);
  out["state"] = state_word(thread.state);
  out["consistent"] = thread.consistent;
  out["compile"] = thread.compile ? compile_json(*thread.compile, thread.user_code, thread.graph)
                                  : Json(nullptr);
  out["waits_for_compile_lock"] = thread.waits_for_compile_lock;
  out["frames"] = Json::array();
  for (const DumpFrame& frame : thread.frames) out["frames"].push_back(frame_json(frame));
  out["truncated"] = thread.truncated;
  return out;
}

}  // namespace

Json to_json(const ProcessDump& dump) {
  Json out;
  out["version"] = 1;
  out["pid"] = dump.pid;
  out["command"] = backslash_escaped(dump.command);
  out["python"] = dump.python;
  out["torch"] = dump.torch ? Json(backslash_escaped(*dump.torch)) : Json(nullptr);
  out["seconds_to_read"] = std::round(dump.seconds * 1e6) / 1e6;
  out["compile_lock_holder"] =
      dump.compile_lock_holder ? Json(*dump.compile_lock_holder) : Json(nullptr);
  out["other_threads"] = dump.other_threads;
  out["subinterpreter_threads"] = dump.elsewhere;
  out["threads_left_out"] = dump.threads_dropped;
  out["problems"] = Json::array();
  for (const std::string& problem : dump.problems)
    out["problems"].push_back(backslash_escaped(problem));
  out["threads"] = Json::array();
  for (const ThreadDump& thread : dump.threads) out["threads"].push_back(thread_json(thread));
  return out;
}

int run_dump(const CommandLine& line) {
  using Clock = std::chrono::steady_clock;
  const DumpOptions& options = line.dump;
  Terminal terminal(line.quiet);
  keep_only_reading();
  const StuckWatch watch(end_stuck);
  if (options.every_ns != 0) catch_top_signals();
  DumpAgain again;
  const Clock::time_point began = Clock::now();
  Clock::time_point next = began;
  for (std::uint64_t i = 0;; ++i) {
    auto dump = dump_process(options.pid);
    if (!dump && i != 0 && has_ended(options.pid)) {
      terminal.line(fmt::format("process {} has ended", options.pid));
      return 0;
    }
    if (!dump) return fail(dump.error());
    for (const std::string& problem : dump->problems) terminal.line("warning: " + problem);
    const std::chrono::duration<double> seconds = Clock::now() - began;
    std::string text = i == 0 ? "" : fmt::format("\nAfter {:.1f} s:\n", seconds.count());
    if (options.json)
      // One document, or one in each line.
      text = to_json(*dump).dump(options.every_ns == 0 ? 1 : -1, ' ', true,
                                 Json::error_handler_t::replace) +
             "\n";
    else
      text += again.text(*dump, seconds.count());
    if (auto printed = print_out(text); !printed) return fail(printed.error());
    if (options.every_ns == 0 || i + 1 == options.iterations) return 0;
    next = std::max(next + std::chrono::nanoseconds(options.every_ns), Clock::now());
    if (wait_for_quit(next)) return 0;
  }
}

}  // namespace dynprof
