// generated/<id>/index.md: one compile's generated code on one page, as depyf's dump has it in files: the user's
// source, the chain of graphs and resume functions, guards, the rewritten code, graphs, kernels.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "symbolizer/attribution/generated.h"

namespace dynprof {

// What a decompiler made of files of kind "code_object": by their index in Generated::files().
using Decompiled = std::map<std::uint32_t, std::string>;

struct GeneratedPage {
  std::string directory;  // of generated/
  std::string stem;       // "index", "forward_wrapper"
  std::string suffix;     // ".md", "_plan.json"
  std::string text;
};

// For each directory of a known compile.
std::vector<GeneratedPage> generated_pages(const Attribution& attribution,
                                           const Generated& generated,
                                           const Decompiled& decompiled);

}  // namespace dynprof
