// Per compile: the user functions Dynamo traced, as lines of the report (at most kReportColumns wide).
#pragma once

#include <string>
#include <string_view>

#include "symbolizer/profile/dynamo_profile.h"

namespace dynprof {

// Begins with a "#" line, as the other parts of a compile's page do. Nothing at all for a compile in
// which Dynamo traces nothing: a backward, a capture of compiled autograd.
void append_dynamo_table(std::string& out, const Attribution& attribution,
                         const DynamoProfiles& profiles, CompileIndex compile);

// All of it as a file of its own, without a limit on rows, callers or width: each function with the size of its
// bytecode and the least depth it was inlined at; the sums, as torch's own profiler prints them.
std::string dynamo_table_text(const DynamoProfile& profile, std::string_view title);

// Folded stacks for flamegraph.pl, inferno and speedscope: own time in microseconds.
std::string dynamo_folded(const DynamoProfile& profile);

}  // namespace dynprof
