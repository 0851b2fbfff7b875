#include "symbolizer/report/dynamo_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kRows = 20;
constexpr std::size_t kCallers = 3;
constexpr std::size_t kNameColumn = 47;
constexpr std::size_t kPlaceColumns = 40;

double milliseconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

std::string counted(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", grouped(count), count == 1 ? one : many);
}

// "Block.forward (model.py:12)"
std::string place(const DynamoFunction& function, std::size_t width) {
  std::string file =
      function.first_line == 0
          ? ""
          : fmt::format(" ({}:{})", cut(base_name(function.file), kPlaceColumns / 2, true),
                        function.first_line);
  std::size_t left = width - std::min(width - 10, display_width(file));
  return cut(function.qualname, left) + file;
}

void append_row(std::string& out, const DynamoFunction& function) {
  out += fmt::format("  {:>9} {:>9} {:>10.3f} {:>10.3f}  ", function.calls.calls,
                     function.calls.primitive, milliseconds(function.calls.own_ns),
                     milliseconds(function.calls.cumulative_ns));
  out += place(function, kReportColumns - kNameColumn) + '\n';
}

// The callers with the most time, one line each.
void append_callers(std::string& out, const DynamoProfile& profile,
                    const DynamoFunction& function) {
  std::vector<const DynamoCaller*> callers;
  for (const DynamoCaller& caller : function.callers) callers.push_back(&caller);
  std::stable_sort(callers.begin(), callers.end(),
                   [](const DynamoCaller* a, const DynamoCaller* b) {
                     return a->calls.cumulative_ns > b->calls.cumulative_ns;
                   });
  for (std::size_t i = 0; i < std::min(callers.size(), kCallers); ++i) {
    const DynamoCaller& caller = *callers[i];
    std::string line = fmt::format("  {:>9} {:>9} {:>10.3f} {:>10.3f}    from ", caller.calls.calls,
                                   caller.calls.primitive, milliseconds(caller.calls.own_ns),
                                   milliseconds(caller.calls.cumulative_ns));
    std::size_t left = kReportColumns - std::min(line.size(), kReportColumns - 20);
    out += line + place(profile.functions[caller.function], left) + '\n';
  }
  if (callers.size() > kCallers) {
    out += std::string(kNameColumn, ' ') +
           fmt::format("from {} more\n", grouped(callers.size() - kCallers));
  }
}

void append_notes(std::string& out, const DynamoProfile& profile) {
  if (profile.root_ns == 0) {
    append_comment(out, "Tracing was not seen from begin to end: calls may be missing.");
  }
  if (profile.raised > 0) {
    append_comment(out, fmt::format("Not counted: {} that an exception ended; their time is their "
                                    "callers'.",
                                    counted(profile.raised, "call", "calls")));
  }
  if (profile.unfinished > 0) {
    append_comment(out, fmt::format("Not counted: {} whose end was not seen.",
                                    counted(profile.unfinished, "call", "calls")));
  }
}

// "": Dynamo traces nothing in such a compile.
std::string why_not(const Attribution& attribution, const DynamoProfiles& profiles,
                    CompileIndex index) {
  const Compile& compile = attribution.compiles()[index];
  if (compile.kind == CompileKind::kBackward || compile.kind == CompileKind::kCompiledAutograd) {
    return "";
  }
  if (compile.before_attach) return "not known: it had ended when the recording began";
  if (profiles.watched(index)) return "no inlined call was seen to its end";
  return "not known: needs hardware watchpoints";
}

}  // namespace

void append_dynamo_table(std::string& out, const Attribution& attribution,
                         const DynamoProfiles& profiles, CompileIndex compile) {
  const DynamoProfile* profile = profiles.of(compile);
  if (profile == nullptr) {
    if (std::string why = why_not(attribution, profiles, compile); !why.empty()) {
      out += "#\n";
      append_comment(out, "User functions Dynamo traced: " + why);
    }
    return;
  }
  std::vector<const DynamoFunction*> rows;
  for (const DynamoFunction& function : profile->functions) {
    if (function.calls.calls > 0) rows.push_back(&function);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const DynamoFunction* a, const DynamoFunction* b) {
    return a->calls.cumulative_ns > b->calls.cumulative_ns;
  });
  out += "#\n";
  std::string title =
      fmt::format("User functions Dynamo traced: {} ({} primitive) of {}",
                  counted(profile->sum.calls, "call", "calls"), grouped(profile->sum.primitive),
                  counted(rows.size(), "function", "functions"));
  if (profile->root_ns > 0) title += fmt::format(" in {:.3f} ms", milliseconds(profile->root_ns));
  append_comment(out, title);
  append_comment(out, "pcalls: not inside the same function. tottime: without what was inlined.");
  out += "#    ncalls    pcalls tottime ms cumtime ms  Function (file:line), from its callers\n";
  std::size_t shown = std::min(rows.size(), kRows);
  for (std::size_t i = 0; i < shown; ++i) {
    append_row(out, *rows[i]);
    append_callers(out, *profile, *rows[i]);
  }
  if (rows.size() > shown) {
    append_comment(out, fmt::format("{} more, each less", grouped(rows.size() - shown)));
  }
  append_notes(out, *profile);
}

}  // namespace dynprof
