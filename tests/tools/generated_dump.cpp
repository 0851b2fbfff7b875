// Prints what find_generated finds in a process, as JSON:
//   generated_dump PID [--files N] [--bytes N] [--total N] [--gc N]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>

#include "symbolizer/base/text.h"
#include "user/generated/find_generated.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_memory.h"
#include "user/target/remote_objects.h"

namespace dynprof {
namespace {

std::string quoted(std::string_view text) { return "\"" + json_escape(text) + "\""; }

// Bytes in hexadecimal.
std::string content(const GeneratedFile& file) {
  if (file.kind != GeneratedKind::kCodeObject) return quoted(file.content);
  std::string text;
  for (unsigned char byte : file.content) text += fmt::format("{:02x}", byte);
  return quoted(text);
}

std::string calls(const GeneratedFile& file) {
  std::string text;
  for (const GeneratedCall& call : file.calls) {
    std::string ids;
    for (const std::string& id : call.compiled_as) ids += (ids.empty() ? "" : ",") + quoted(id);
    text += fmt::format("{}[{},{},{},[{}]]", text.empty() ? "" : ",", quoted(call.name), call.graph,
                        quoted(call.function), ids);
  }
  return "[" + text + "]";
}

void print_files(const GeneratedCode& code, double seconds) {
  fmt::print("{{\"seconds\":{:.4f},\"files\":[", seconds);
  const char* comma = "";
  for (const GeneratedFile& file : code.files) {
    fmt::print(
        "{}\n{{\"trace_id\":{},\"kind\":{},\"direction\":{},\"name\":{},\"origin\":{},"
        "\"truncated\":{},\"problem\":{},\"size\":{},\"calls\":{},\"content\":{}}}",
        comma, quoted(file.trace_id), quoted(kind_name(file.kind)),
        quoted(direction_name(file.direction)), quoted(file.name), quoted(file.origin),
        file.truncated, quoted(file.problem), file.content.size(), calls(file), content(file));
    comma = ",";
  }
  fmt::print("],\"missing\":[");
  comma = "";
  for (const std::string& sentence : code.missing) {
    fmt::print("{}{}", comma, quoted(sentence));
    comma = ",";
  }
  fmt::print("]");
}

int run(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) {
    fmt::print(stderr, "usage: generated_dump PID [--files N] [--bytes N]\n");
    return 2;
  }
  pid_t pid = std::atoi(argv[1]);
  GeneratedLimits limits;
  // Tests run it at low priority on a busy machine: a look that the clock ends differs from the next one.
  limits.by_the_clock = std::chrono::seconds(40);
  for (int i = 2; i + 1 < argc; i += 2) {
    std::string_view option = argv[i];
    auto number = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--files") limits.files = number;
    if (option == "--bytes") limits.file_bytes = number;
    if (option == "--total") limits.total_bytes = number;
    if (option == "--gc") limits.gc_objects = number;
  }
  auto runtime = discover_python(pid);
  if (!runtime) {
    fmt::print(stderr, "{}\n", runtime.error().what);
    return 1;
  }
  ProcessMemory memory(pid);
  RemoteObjects objects(memory, runtime->layout);
  objects.set_str_type(runtime->str_type);
  auto begin = std::chrono::steady_clock::now();
  GeneratedCode code = find_generated(objects, *runtime, pid, limits);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  print_files(code, took.count());
  fmt::print("}}\n");
  return 0;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) { return dynprof::run(argc, argv); }
