#include "user/generated/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "symbolizer/base/enum_text.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxNameHint = 64;

bool digit(char c) { return c >= '0' && c <= '9'; }

bool take_number(std::string_view& text) {
  std::size_t size = 0;
  while (size < text.size() && size < 18 && digit(text[size])) ++size;
  text.remove_prefix(size);
  return size != 0;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

std::string_view kind_name(GeneratedKind kind) {
  static constexpr const char* kTexts[] = {"wrapper",  "kernel_source",   "fx_graph",    "guards",
                                           "bytecode", "resume_function", "code_object", "source"};
  return enum_text<GeneratedKind::kSource>(kTexts, kind, "");
}

std::string_view direction_name(GeneratedDirection direction) {
  static constexpr const char* kTexts[] = {"", "forward", "backward", "inference"};
  return enum_text<GeneratedDirection::kInference>(kTexts, direction, "");
}

std::optional<AotId> parse_aot_id(std::string_view source) {
  std::string_view line = source.substr(0, std::min(source.find('\n'), source.size()));
  if (!take(line, "# AOT ID: ['")) return std::nullopt;
  std::string_view rest = line;
  AotId id;
  if (!take_number(rest)) return std::nullopt;
  id.graph = std::string(line.substr(0, line.size() - rest.size()));
  for (auto direction : {GeneratedDirection::kForward, GeneratedDirection::kBackward,
                         GeneratedDirection::kInference}) {
    if (rest.starts_with(fmt::format("_{}'", direction_name(direction)))) {
      id.direction = direction;
      return id;
    }
  }
  return std::nullopt;
}

bool is_trace_id(std::string_view text) {
  if (take(text, "!")) {
    if (!take_number(text)) return false;
    if (text.empty()) return true;
    if (!take(text, "/")) return false;
  }
  return take_number(text) && take(text, "/") && take_number(text) && text.empty();
}

std::string trace_id_directory(std::string_view trace_id) {
  if (trace_id.empty()) return "unknown";
  return sanitize_file_component(trace_id);
}

std::string FileNames::make(std::string_view trace_id, std::string_view hint,
                            std::string_view extension) {
  std::string stem = sanitize_file_component(hint.substr(0, kMaxNameHint));
  // Two names never differ in case alone: the directory may be copied to a file system that ignores case.
  std::string folder = lower_case(trace_id_directory(trace_id)) + "/";
  std::string name = stem + std::string(extension);
  for (int next = 2; !taken_.insert(folder + lower_case(name)).second; ++next) {
    name = fmt::format("{}_{}{}", stem, next, extension);
  }
  return name;
}

void FileNames::keep(std::string_view trace_id, std::string_view name) {
  taken_.insert(lower_case(trace_id_directory(trace_id)) + "/" + lower_case(std::string(name)));
}

std::string directed_name(GeneratedDirection direction, std::string_view what) {
  std::string_view name = direction_name(direction);
  return name.empty() ? std::string(what) : fmt::format("{}_{}", name, what);
}

std::optional<std::string_view> source_extension(std::string_view path) {
  static constexpr std::array<std::string_view, 12> kExtensions = {
      ".py", ".cpp", ".cu", ".c", ".h", ".hpp", ".hip", ".cl", ".ttir", ".llir", ".ptx", ".metal"};
  std::string_view name = base_name(path);
  for (std::string_view extension : kExtensions) {
    if (name.size() > extension.size() && name.ends_with(extension)) return extension;
  }
  return std::nullopt;
}

bool is_compiled_fn(std::string_view name) { return name.starts_with("__compiled_fn_"); }
bool is_resume_point(std::string_view name) { return name.starts_with("__resume_at_"); }

}  // namespace dynprof
