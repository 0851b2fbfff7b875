// Per compile: the user functions Dynamo traced, as lines of the report (at most kReportColumns wide).
#pragma once

#include <string>

#include "symbolizer/profile/dynamo_profile.h"

namespace dynprof {

// Begins with a "#" line, as the other parts of a compile's page do. Nothing at all for a compile in
// which Dynamo traces nothing: a backward, a capture of compiled autograd.
void append_dynamo_table(std::string& out, const Attribution& attribution,
                         const DynamoProfiles& profiles, CompileIndex compile);

}  // namespace dynprof
