// Code that a compile of torch generated in the target, as text. All of it was written by the target:
// bytes to show or to copy, never to run, and names are never used as paths.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dynprof {

enum class GeneratedKind : std::uint8_t {
  kWrapper,         // Inductor's Python: allocates and launches kernels
  kKernelSource,    // a kernel of its own file: C++, Triton
  kFxGraph,         // a graph as Python code
  kGuards,          // what has to hold for a compiled code to be used
  kBytecode,        // the code object Dynamo made of a frame, as a listing
  kResumeFunction,  // the code object that goes on after a graph break
  kCodeObject,      // one of the two above, or the user's own, as a .pyc file
  kSource,          // the user's function, from its file
};

enum class GeneratedDirection : std::uint8_t {
  kNone,  // of neither, of both (a captured or a joint graph), or not known
  kForward,
  kBackward,
  kInference,  // a forward that no backward follows
};

// A global that Dynamo made for a code: what the code calls.
struct GeneratedCall {
  std::string name;                      // "__compiled_fn_1_<uuid>", "__resume_at_138_3"
  bool graph = false;                    // a compiled graph; else a resume function
  std::string function;                  // of a resume function: "f (/tmp/model.py:9)"
  std::vector<std::string> compiled_as;  // of a resume function: the trace ids of its compiles
  bool operator==(const GeneratedCall&) const = default;
};

struct GeneratedFile {
  // "0/0", "!1/0/0"; "" when no chain of objects leads to it. docs/concepts/generated-code.md
  std::string trace_id;
  GeneratedKind kind = GeneratedKind::kWrapper;
  GeneratedDirection direction = GeneratedDirection::kNone;
  std::string name;    // a file name of ours, unique among the files of its trace id
  std::string origin;  // where it was: a path or an object in the target. Hostile: for display only
  std::string
      kernel;  // of kKernelSource: the kernel's name in the wrapper, "": not known. Hostile too
  std::string content;
  std::string function;  // of code and of a source: the user's function, "f (/tmp/model.py:9)"
  std::int32_t first_line = 0;       // of a source: that of `content`
  std::vector<GeneratedCall> calls;  // of a kBytecode, in the order Dynamo made them
  bool truncated = false;            // `content` is the beginning of it
  std::string problem;               // what went wrong; `content` may be there all the same
};

struct GeneratedLimits {
  std::size_t file_bytes = std::size_t{4} << 20;
  std::size_t total_bytes = std::size_t{64} << 20;
  std::size_t files = 512;
  // Container objects of the target's garbage collector that are looked at for guards; 0: none.
  std::size_t gc_objects = 2'000'000;
  // CPU time for both readings, half each, and time by the clock; when one is used up, the files found so far are the
  // result.
  std::chrono::milliseconds time{5000};
  std::chrono::milliseconds by_the_clock{5000};
};

struct GeneratedCode {
  std::vector<GeneratedFile> files;
  // What could not be read, a sentence each, for people. Text of the target in it is escaped.
  std::vector<std::string> missing;
};

// "wrapper", "kernel_source", "fx_graph", "guards", "bytecode", "resume_function", "code_object", "source".
std::string_view kind_name(GeneratedKind kind);
// "forward", "backward", "inference" or "".
std::string_view direction_name(GeneratedDirection direction);

}  // namespace dynprof
