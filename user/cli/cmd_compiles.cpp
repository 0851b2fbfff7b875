// `compiles`: what a process has compiled so far, read from its memory without stopping it.
#include "user/cli/cmd_compiles.h"

#include <nlohmann/json.hpp>

#include "user/cli/commands.h"
#include "user/cli/end_stuck.h"
#include "user/cli/standard_streams.h"
#include "user/cli/terminal.h"
#include "user/preflight/capabilities.h"
#include "user/preflight/check_target.h"
#include "user/session/stuck_watch.h"

namespace dynprof {
namespace {

Result<CompileHistory> read_history(pid_t pid) {
  TRY(check_target(pid));
  ASSIGN_OR_RETURN(PythonRuntime runtime, discover_python(pid));
  ProcessMemory memory(pid);
  RemoteObjects objects(memory, runtime.layout);
  objects.set_str_type(runtime.str_type);
  return read_compile_history(objects, runtime);
}

}  // namespace

int run_compiles(const CommandLine& line) {
  Terminal terminal(line.quiet);
  keep_only_reading();
  const StuckWatch watch(end_stuck);
  auto history = read_history(line.compiles.pid);
  if (!history) return fail(history.error());
  for (const std::string& problem : history->problems) terminal.line("warning: " + problem);
  const std::string text =
      line.compiles.json
          ? to_json(*history).dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) +
                "\n"
      : line.compiles.times ? compile_times_table(*history)
                            : compiles_table(*history);
  if (auto printed = print_out(text); !printed) return fail(printed.error());
  return 0;
}

}  // namespace dynprof
