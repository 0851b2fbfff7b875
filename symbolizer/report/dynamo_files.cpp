// The files of what Dynamo traced in one compile: the whole table, and folded stacks.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/report/dynamo_table.h"

namespace dynprof {
namespace {

double milliseconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

std::string place(const DynamoFunction& function) {
  return escape_terminal(
      fmt::format("{} ({}:{})", function.qualname, function.file, function.first_line));
}

std::string numbers(const DynamoCalls& calls) {
  return fmt::format("{:>9} {:>9} {:>12.3f} {:>12.3f}", calls.calls, calls.primitive,
                     milliseconds(calls.own_ns), milliseconds(calls.cumulative_ns));
}

// A frame of a folded stack: the format has ';' between frames, and a space before the number.
std::string frame(const DynamoFunction& function) {
  std::string text = fmt::format("{} ({}:{})", escape_terminal(function.qualname),
                                 escape_terminal(base_name(function.file)), function.first_line);
  std::replace(text.begin(), text.end(), ';', ':');
  return text;
}

}  // namespace

std::string dynamo_table_text(const DynamoProfile& profile, std::string_view title) {
  std::vector<const DynamoFunction*> rows;
  for (const DynamoFunction& function : profile.functions)
    if (function.calls.calls > 0) rows.push_back(&function);
  std::stable_sort(rows.begin(), rows.end(), [](const DynamoFunction* a, const DynamoFunction* b) {
    return a->calls.cumulative_ns > b->calls.cumulative_ns;
  });
  std::string out = fmt::format("# User functions Dynamo traced in compile {}\n", title);
  out +=
      "# pcalls: calls not inside the same function. tottime: without what was inlined. bytes: of "
      "its "
      "bytecode. depth: the least it was inlined at.\n";
  out += fmt::format("{:>9} {:>9} {:>12} {:>12} {:>7} {:>6}  function\n", "ncalls", "pcalls",
                     "tottime ms", "cumtime ms", "bytes", "depth");
  std::uint64_t cumulative_ns = 0;
  for (const DynamoFunction* function : rows) {
    cumulative_ns += function->calls.cumulative_ns;
    const std::string bytes =
        function->code_bytes == 0 ? "?" : fmt::format("{}", function->code_bytes);
    out += fmt::format("{} {:>7} {:>6}  {}\n", numbers(function->calls), bytes, function->depth,
                       place(*function));
    std::vector<const DynamoCaller*> callers;
    for (const DynamoCaller& caller : function->callers) callers.push_back(&caller);
    std::stable_sort(callers.begin(), callers.end(),
                     [](const DynamoCaller* a, const DynamoCaller* b) {
                       return a->calls.cumulative_ns > b->calls.cumulative_ns;
                     });
    for (const DynamoCaller* caller : callers) {
      out += fmt::format("{} {:>7} {:>6}    from {}\n", numbers(caller->calls), "", "",
                         place(profile.functions[caller->function]));
    }
  }
  out +=
      fmt::format("# Calls: {}, functions: {}. Sum of tottime: {:.3f} ms, of cumtime: {:.3f} ms\n",
                  profile.sum.calls, rows.size(), milliseconds(profile.sum.own_ns),
                  milliseconds(cumulative_ns));
  if (profile.raised > 0)
    out += fmt::format("# Not counted: {} calls that an exception ended.\n", profile.raised);
  if (profile.unfinished > 0)
    out += fmt::format("# Not counted: {} calls whose end was not seen.\n", profile.unfinished);
  return out;
}

std::string dynamo_folded(const DynamoProfile& profile) {
  std::string out;
  for (const DynamoStack& stack : profile.stacks) {
    std::string line;
    for (std::uint32_t function : stack.functions)
      line += (line.empty() ? "" : ";") + frame(profile.stack_functions[function]);
    out += fmt::format("{} {}\n", line, (stack.own_ns + 500) / 1000);
  }
  return out;
}

}  // namespace dynprof
