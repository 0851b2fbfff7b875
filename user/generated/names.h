// Names: of the files we write, and those torch gave to what it made. Pure functions.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "user/generated/generated_file.h"

namespace dynprof {

// What the first line of an Inductor wrapper says: `# AOT ID: ['0_forward']`.
struct AotId {
  std::string graph;  // "0"
  GeneratedDirection direction = GeneratedDirection::kNone;
  bool operator==(const AotId&) const = default;
};
// Nothing when the line is another one. Looks at the first line only.
std::optional<AotId> parse_aot_id(std::string_view source);

// Whether `text` is what str(CompileId) gives: "0/0", "!1", "!1/0/0".
bool is_trace_id(std::string_view text);

// The directory for the files of a trace id: "0/0" -> "0_0", "" -> "unknown". One safe component for
// any text.
std::string trace_id_directory(std::string_view trace_id);

// `hint` as a safe file name that no name of the same trace id has: "wrapper.py", "wrapper_2.py".
// `extension` is ours, with its dot.
class FileNames {
 public:
  std::string make(std::string_view trace_id, std::string_view hint, std::string_view extension);
  // A name that another one made.
  void keep(std::string_view trace_id, std::string_view name);

 private:
  std::set<std::string> taken_;  // "0_0/wrapper.py", in lower case
};

// "forward", "graph" -> "forward_graph"; without a direction "graph".
std::string directed_name(GeneratedDirection direction, std::string_view what);

// The extension of a source file torch may generate (".py", ".cpp", ".cu", ...), nothing for others.
std::optional<std::string_view> source_extension(std::string_view path);

// "__compiled_fn_3_<uuid>" and "__compiled_fn_3" -> true.
bool is_compiled_fn(std::string_view name);
// "__resume_at_138_3" -> true.
bool is_resume_point(std::string_view name);

}  // namespace dynprof
