// The code objects Dynamo made (torch._dynamo.utils.orig_code_map) with what each calls: compiled
// graphs and resume functions, by the globals Dynamo made for it (CleanupManager.instance), and the
// compile each belongs to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "user/generated/guard_managers.h"
#include "user/generated/python_objects.h"
#include "user/generated/reachable.h"

namespace dynprof {

struct CompiledGraph {
  std::string name;  // "__compiled_fn_3_<uuid>"
  // "" where the walk from it met objects of another compile.
  std::string trace_id;
  Reachable reachable;
};

struct CompiledCode {
  std::uint64_t code = 0;
  std::uint64_t original = 0;  // the user's code object
  // By its cache entry, else by its graphs, when all of them agree; "" otherwise.
  std::string trace_id;
  std::vector<CompiledGraph> graphs;
  std::vector<NamedValue> resume_points;  // "__resume_at_138_3" -> the resume function's code
  std::vector<GuardManager> guards;
};

struct ResumeFunction {
  std::uint64_t code = 0;
  std::uint64_t resumes = 0;  // the user's code object it continues
};

struct CompiledCodes {
  std::vector<CompiledCode> codes;
  std::vector<ResumeFunction> resume_functions;
  std::vector<GuardManager> other_guards;  // of no code in `codes`
  std::string missing;                     // which of torch's tables is not there; "" when all are
};

CompiledCodes find_compiled_codes(PythonObjects& python, const GuardObjects& objects,
                                  LookDeadline deadline);

}  // namespace dynprof
