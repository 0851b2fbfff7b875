#include "symbolizer/attribution/generated_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxFiles = 10'000;
constexpr std::size_t kMaxWord = 64;
constexpr std::size_t kMaxOrigin = 4096;
constexpr std::size_t kMaxKernel = 512;
constexpr std::size_t kMaxCalls = 4096;
constexpr std::size_t kMaxCompiles = 256;
constexpr std::int64_t kMaxLine = 100'000'000;

std::string text(const Json& object, const char* name, std::size_t most) {
  auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return {};
  const std::string& full = found->get_ref<const std::string&>();
  return full.size() <= most ? full : std::string();
}

std::int32_t line(const Json& object, const char* name) {
  auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return 0;
  const auto value = found->get<std::int64_t>();
  return value > 0 && value <= kMaxLine ? static_cast<std::int32_t>(value) : 0;
}

std::vector<GeneratedCallee> read_calls(const Json& object) {
  std::vector<GeneratedCallee> calls;
  auto list = object.find("calls");
  if (list == object.end() || !list->is_array()) return calls;
  for (const Json& one : *list) {
    if (!one.is_object() || calls.size() == kMaxCalls) break;
    GeneratedCallee call;
    call.name = text(one, "name", kMaxOrigin);
    call.function = text(one, "function", kMaxOrigin);
    auto graph = one.find("graph");
    call.graph = graph != one.end() && graph->is_boolean() && graph->get<bool>();
    auto ids = one.find("compiled_as");
    if (ids != one.end() && ids->is_array()) {
      for (const Json& id : *ids) {
        if (!id.is_string() || call.compiled_as.size() == kMaxCompiles) break;
        const TraceId trace_id = parse_trace_id(id.get_ref<const std::string&>());
        if (is_valid(trace_id)) call.compiled_as.push_back(trace_id);
      }
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// Recordings without it have it in the file's name, "forward_cpp_fused_add_0.cpp", cut at 64 characters.
std::string kernel_of(std::string_view name) {
  for (std::string_view direction : {"forward_", "backward_", "inference_"})
    if (name.starts_with(direction)) name.remove_prefix(direction.size());
  return std::string(name.substr(0, name.rfind('.')));
}

// Some file systems tell no capitals from small letters.
class FreeNames {
 public:
  std::string take(const std::string& directory, const std::string& wanted) {
    std::string name = wanted;
    std::size_t dot = wanted.rfind('.');
    if (dot == 0 || dot == std::string::npos) dot = wanted.size();
    int& next = next_[lower(directory + '/' + wanted)];
    while (!taken_.insert(lower(directory + '/' + name)).second) {
      name = fmt::format("{}_{}{}", wanted.substr(0, dot), next++ + 2, wanted.substr(dot));
    }
    return name;
  }

 private:
  std::set<std::string> taken_;
  std::map<std::string, int> next_;
};

}  // namespace

std::vector<GeneratedCopy> read_generated_copies(const Tables& tables, std::int32_t main_pid) {
  std::vector<GeneratedCopy> files;
  FreeNames names;
  for (const Fact& fact : tables.facts) {
    if (tables.strings[fact.kind] != "generated") continue;
    if (files.size() == kMaxFiles) break;
    std::string_view description = tables.strings[fact.name];
    Json json = Json::parse(description.begin(), description.end(), nullptr, false);
    if (!json.is_object()) continue;
    GeneratedCopy file;
    file.pid = fact.pid;
    file.id = parse_trace_id(text(json, "trace_id", kMaxWord));
    file.kind = text(json, "kind", kMaxWord);
    file.direction = text(json, "direction", kMaxWord);
    file.origin = text(json, "origin", kMaxOrigin);
    if (file.kind == "kernel_source") {
      file.kernel = text(json, "kernel", kMaxKernel);
      if (file.kernel.empty()) file.kernel = kernel_of(text(json, "name", kMaxOrigin));
    }
    file.function = text(json, "function", kMaxOrigin);
    file.problem = text(json, "problem", kMaxOrigin);
    file.first_line = line(json, "first_line");
    file.calls = read_calls(json);
    auto truncated = json.find("truncated");
    file.truncated = truncated != json.end() && truncated->is_boolean() && truncated->get<bool>();
    file.body = fact.body;
    std::string id = is_valid(file.id) ? file.id.text() : "unknown";
    std::replace(id.begin(), id.end(), '/', '_');
    std::string prefix = fact.pid == main_pid ? "" : fmt::format("pid{}-", fact.pid);
    file.directory = sanitize_file_component(prefix + id);
    file.name = names.take(file.directory, sanitize_file_component(text(json, "name", kMaxOrigin)));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace dynprof
