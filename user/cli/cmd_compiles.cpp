// `compiles`: what a process has compiled so far, read from its memory without stopping it.
#include "user/cli/cmd_compiles.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "symbolizer/base/text.h"
#include "user/cli/commands.h"
#include "user/cli/terminal.h"
#include "user/preflight/check_target.h"

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
  auto history = read_history(line.compiles.pid);
  if (!history) {
    print_error(history.error());
    return history.error().exit_code;
  }
  for (const std::string& problem : history->problems) {
    terminal.line("warning: " + escape_terminal(problem));
  }
  if (line.compiles.json) {
    fmt::print("{}\n", to_json(*history).dump(1));
  } else if (line.compiles.times) {
    fmt::print("{}", compile_times_table(*history));
  } else {
    fmt::print("{}", compiles_table(*history));
  }
  return 0;
}

}  // namespace dynprof
