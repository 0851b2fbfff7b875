// The verbs. Each returns the exit status and has printed its errors.
#pragma once

#include "user/cli/options.h"

namespace dynprof {

int run_record(const CommandLine& line, const std::string& shown_command);
int run_report(const CommandLine& line);
int run_export(const CommandLine& line);
int run_compare(const CommandLine& line);
int run_compiles(const CommandLine& line);
int run_dump(const CommandLine& line);
int run_top(const CommandLine& line);
int run_doctor(const CommandLine& line);

}  // namespace dynprof
