#include "symbolizer/attribution/kernel_sources.h"

#include <algorithm>
#include <charconv>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxKernels = 4096;  // of a wrapper
constexpr std::size_t kMaxNodes = 20'000;  // of a graph, or of all kernels of a wrapper
constexpr std::size_t kMaxText = 4096;

// The next line of a text, without the spaces before it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return line;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxText &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                  (c >= 'A' && c <= 'Z');
         });
}

// "#   linear => permute, addmm"
void add_nodes(std::string_view line, std::vector<std::string>& nodes) {
  const std::size_t arrow = line.find(" => ");
  if (arrow == std::string_view::npos) return;
  std::string_view rest = line.substr(arrow + 4);
  while (!rest.empty() && nodes.size() < kMaxNodes) {
    const std::size_t comma = rest.find(", ");
    if (const std::string_view name = rest.substr(0, comma); is_name(name))
      nodes.emplace_back(name);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
  }
}

// "# File: /home/me/model.py:41 in forward, code: return torch.relu(x)"
bool parse_place(std::string_view line, SourceLine& place) {
  constexpr std::string_view kFile = "# File: ";
  if (!line.starts_with(kFile)) return false;
  line.remove_prefix(kFile.size());
  line = line.substr(0, line.find(", code:"));
  const std::size_t in = line.rfind(" in ");
  const std::size_t colon = line.rfind(':', in);
  if (in == std::string_view::npos || colon == std::string_view::npos) return false;
  const std::string_view number = line.substr(colon + 1, in - colon - 1);
  const auto [end, problem] =
      std::from_chars(number.data(), number.data() + number.size(), place.line);
  if (problem != std::errc() || end != number.data() + number.size() || place.line <= 0)
    return false;
  place.file = valid_utf8(line.substr(0, std::min(colon, kMaxText)));
  place.function = valid_utf8(line.substr(in + 4, kMaxText));
  return true;
}

}  // namespace

std::map<std::string, std::vector<std::string>> kernel_nodes(std::string_view wrapper) {
  std::map<std::string, std::vector<std::string>> found;
  std::vector<std::string> nodes;
  bool mapping = false;
  while (!wrapper.empty() && found.size() < kMaxKernels) {
    const std::string_view line = take_line(wrapper);
    if (line.starts_with('#')) {
      if (line.ends_with("Source node to ATen node mapping:")) {
        nodes.clear();
        mapping = true;
      } else if (mapping && line.starts_with("#   ")) {
        add_nodes(line, nodes);
      } else {
        mapping = false;  // "# Graph fragment:", and what belongs to another kernel
      }
      continue;
    }
    // "triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''"
    const std::size_t assign = line.find(" = async_compile.");
    if (assign != std::string_view::npos && is_name(line.substr(0, assign)) && !nodes.empty())
      found.emplace(line.substr(0, assign), nodes);
    nodes.clear();
    mapping = false;
  }
  return found;
}

std::map<std::string, SourceLine> node_lines(std::string_view graph) {
  std::map<std::string, SourceLine> found;
  SourceLine place;
  while (!graph.empty() && found.size() < kMaxNodes) {
    const std::string_view line = take_line(graph);
    if (line.starts_with("# ")) {
      if (!parse_place(line, place)) place = {};
      continue;
    }
    // "relu: "f32[8, 64]" = torch.ops.aten.relu.default(addmm);  addmm = None", or without its type
    const std::string_view name = line.substr(0, line.find_first_of(": "));
    if (place.line > 0 && is_name(name) && line.find(" = ") != std::string_view::npos)
      found.emplace(name, place);
  }
  return found;
}

KernelSources::KernelSources(const Tables& tables, const std::vector<GeneratedCopy>& files) {
  for (const GeneratedCopy& wrapper : files) {
    if (wrapper.kind != "wrapper" || !is_valid(wrapper.id)) continue;
    const auto graph = std::find_if(files.begin(), files.end(), [&](const GeneratedCopy& file) {
      return file.kind == "fx_graph" && file.name.find("post_grad_graph") != std::string::npos &&
             file.pid == wrapper.pid && file.id == wrapper.id &&
             file.direction == wrapper.direction;
    });
    if (graph == files.end()) continue;
    const auto kernels = kernel_nodes(tables.blobs[wrapper.body]);
    if (kernels.empty()) continue;
    const auto lines = node_lines(tables.blobs[graph->body]);
    for (const auto& [kernel, nodes] : kernels) {
      std::vector<SourceLine>& of =
          lines_[{wrapper.pid, wrapper.id, wrapper.direction == "backward", kernel}];
      for (const std::string& node : nodes) {
        const auto line = lines.find(node);
        if (line == lines.end()) continue;
        if (std::find(of.begin(), of.end(), line->second) == of.end()) of.push_back(line->second);
      }
    }
  }
}

const std::vector<SourceLine>& KernelSources::of(std::int32_t pid, const TraceId& id, bool backward,
                                                 const std::string& kernel) const {
  static const std::vector<SourceLine> kNone;
  const auto at = lines_.find({pid, id, backward, kernel});
  return at == lines_.end() ? kNone : at->second;
}

}  // namespace dynprof
