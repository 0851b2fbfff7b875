#include "user/cli/dump_again.h"

#include <fmt/format.h>

#include <utility>

#include "symbolizer/base/amounts.h"
#include "user/cli/cmd_dump.h"

namespace dynprof {
namespace {

// All that is shown of a compile but its age.
std::string state_of(const ThreadDump& thread) {
  std::string out = thread.waits_for_compile_lock ? "waits" : "";
  if (thread.compile) {
    const CompileNow& compile = *thread.compile;
    out += fmt::format("\n{} {}", is_valid(compile.id) ? compile.id.text() : "", compile.attempt);
    for (const std::string& phase : compile.phases) out += '\n' + phase;
  }
  for (const UserLine& line : thread.user_code.lines)
    out += fmt::format("\n{}:{} {}", line.file, line.line, line.function);
  return out + fmt::format("\n{}/{}", thread.graph.node, thread.graph.count);
}

}  // namespace

std::string DumpAgain::text(const ProcessDump& dump, double seconds) {
  std::map<pid_t, Seen> now;
  std::string lines;
  std::size_t shown = 0, more = 0;
  for (const ThreadDump& thread : dump.threads) {
    if (!thread.compile && !thread.waits_for_compile_lock) continue;
    Seen seen = {state_of(thread), seconds};
    const auto before = seen_.find(thread.tid);
    // One that moved while it was read has advanced.
    const bool same =
        thread.consistent && before != seen_.end() && before->second.state == seen.state;
    if (same) seen.since = before->second.since;
    now.emplace(thread.tid, std::move(seen));
    if (shown == kDumpedThreads) {
      ++more;
      continue;
    }
    ++shown;
    lines += thread_header(thread, dump);
    if (same)
      lines += fmt::format("    has not advanced for {}\n",
                           format_seconds(seconds - now.at(thread.tid).since));
  }
  seen_ = std::move(now);
  if (std::exchange(first_, false)) return dump_text(dump);
  if (lines.empty()) lines = dump.torch ? "No thread compiles.\n" : "torch is not imported.\n";
  if (more != 0) lines += fmt::format("{} more threads\n", more);
  return lines;
}

}  // namespace dynprof
