// DIR/generated: the copies of generated code, what a decompiler makes of them, and a page per compile.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "symbolizer/attribution/generated.h"
#include "symbolizer/export/generated_page.h"
#include "user/cli/output_directory.h"
#include "user/cli/terminal.h"

namespace dynprof {

struct DecompileOptions {
  std::string python;  // the Python to run; kAnyDecompiler: python3.N of PATH; "": none
  // Of all code objects together.
  std::size_t count = 200;
  std::chrono::milliseconds time{20'000};
};
inline constexpr const char* kAnyDecompiler = "auto";

// Decompiles code objects until the first failure that would meet each of them, or a limit. What went wrong
// is one note.
Decompiled decompile_all(const Attribution& attribution, const Generated& generated,
                         const DecompileOptions& options, Terminal& terminal);

struct GeneratedOutput {
  std::size_t files = 0;
  std::string page;  // the first one: "0_0/index.md"; "": none
  std::optional<Error> first_error;
};
// Names and bytes are the target's: each file is new, in a directory of ours, and nothing is run.
GeneratedOutput write_generated(const OutputDirectory& directory, const Attribution& attribution,
                                const Generated& generated, const Decompiled& decompiled);

}  // namespace dynprof
