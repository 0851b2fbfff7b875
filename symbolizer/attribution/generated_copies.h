// Code torch generated, copied into the recording while it was there: which files there are, and where
// each goes in the output directory. Names and ids come from the target: they are made safe here, and
// once more where they are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

// What the code of a "bytecode" calls, of what Dynamo made for it.
struct GeneratedCallee {
  std::string name;  // "__compiled_fn_1_<uuid>", "__resume_at_138_3"
  bool graph = false;
  std::string function;              // of a resume function
  std::vector<TraceId> compiled_as;  // of a resume function: its compiles
};

struct GeneratedCopy {
  std::int32_t pid = 0;
  TraceId id;             // not valid: nothing says which compile it is of
  std::string kind;       // "wrapper", "kernel_source", "fx_graph", "guards", ...
  std::string direction;  // "forward", "backward", "inference", "": both, or not known
  std::string origin;     // where it was: a path or an object in the target. For display only
  std::string kernel;     // of a kernel_source: the name that Inductor gave it; "": not known
  std::string
      function;  // of code and of a source: the user's, "f (/tmp/model.py:9)". For display only
  std::int32_t first_line = 0;         // of a source
  std::vector<GeneratedCallee> calls;  // of a bytecode
  std::string problem;                 // what is missing of it. For display only
  bool truncated = false;
  // Where it goes: generated/<directory>/<name>, each one safe path component; no two share both.
  std::string directory;
  std::string name;
  BlobId body = 0;

  std::string path() const { return "generated/" + directory + "/" + name; }
};

// `main_pid` is the target's: what other processes generated is marked with theirs.
std::vector<GeneratedCopy> read_generated_copies(const Tables& tables, std::int32_t main_pid);

}  // namespace dynprof
