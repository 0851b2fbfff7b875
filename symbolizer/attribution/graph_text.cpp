#include "symbolizer/attribution/graph_text.h"

#include <algorithm>
#include <utility>

namespace dynprof {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// The names in "(add_2, [512, 64], memory_format = torch.contiguous_format);  add_2 = None" up to the semicolon. Quotes
// are not looked at: a name in a text that is that of a node is rare, and only its uses count.
void take_names(std::string_view text, std::vector<std::string>& names) {
  constexpr std::size_t kMostNames = 1000;
  text = text.substr(0, text.find(';'));
  while (names.size() < kMostNames) {
    const auto begin = std::find_if(text.begin(), text.end(), [](char c) {
      return is_name({&c, 1});
    });
    const auto end = std::find_if(begin, text.end(), [](char c) { return !is_name({&c, 1}); });
    if (begin == end) return;
    if (*begin < '0' || *begin > '9') names.emplace_back(begin, end);
    text = {end, text.end()};
  }
}

std::string_view take_brackets(std::string_view& text) {
  if (!text.starts_with('[')) return "";
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos) return "";
  std::string_view inside = text.substr(0, end + 1);
  text.remove_prefix(end + 1);
  return inside;
}

// "f32[2, 4][4, 1]cpu", "Sym(s0)", "f32[3]"
void take_annotation(std::string_view text, GraphNode& node) {
  node.annotation = text;
  const std::size_t bracket = text.find('[');
  if (bracket == std::string_view::npos) return;
  node.dtype = text.substr(0, bracket);
  text.remove_prefix(bracket);
  node.shape = take_brackets(text);
  node.strides = take_brackets(text);
  node.device = text;
}

// def forward(self, arg0_1: "f32[3][1]cpu", arg1_1):
void take_inputs(std::string_view line, std::vector<GraphNode>& nodes, std::size_t most) {
  line.remove_prefix(std::min(line.find('(') + 1, line.size()));
  while (!line.empty() && nodes.size() < most) {
    GraphNode node;
    const std::size_t end = line.find_first_of(",:)");
    std::string_view name = trimmed(line.substr(0, end));
    if (end == std::string_view::npos) return;
    const char ended = line[end];
    line.remove_prefix(end + 1);
    if (ended == ':') {
      line = trimmed(line);
      if (line.starts_with('"')) {
        const std::size_t close = line.find('"', 1);
        if (close == std::string_view::npos) return;
        take_annotation(line.substr(1, close - 1), node);
        line.remove_prefix(close + 1);
        line.remove_prefix(std::min(line.find_first_of(",)") + 1, line.size()));
      }
    }
    if (!is_name(name)) {
      if (ended == ')') return;
      continue;
    }
    if (name == "self") continue;
    node.name = name;
    nodes.push_back(std::move(node));
    if (ended == ')') return;
  }
}

// "# Module: L['self'].linear", before
// "# File: /tmp/model.py:12 in forward, code: x = self.linear(x)"
// Other facts may come before the file: "# Annotation: {'stage': 0} File: ", "# recompute: MUST_SAVE File: ", and from
// torch 2.15 on "# Backward of forward node: File: ".
struct Place {
  std::string line, code, module;
  std::string next_module;  // of the "# File:" that comes
};
bool take_place(std::string_view text, Place& place) {
  constexpr std::string_view kModule = "# Module: ";
  constexpr std::string_view kFile = " File: ";
  constexpr std::string_view kCode = ", code: ";
  if (text.starts_with(kModule)) {
    place.next_module = text.substr(kModule.size());
    return true;
  }
  const std::size_t file = text.starts_with('#') ? text.find(kFile) : std::string_view::npos;
  if (file == std::string_view::npos) return false;
  text.remove_prefix(file + kFile.size());
  const std::size_t code = std::min(text.find(kCode), text.size());
  place.line = text.substr(0, code);
  place.code = text.substr(std::min(code + kCode.size(), text.size()));
  place.module = std::exchange(place.next_module, "");
  return true;
}

// "add = x + y  # seq_nr 12"
void take_sequence(std::string_view& line, GraphNode& node) {
  constexpr std::string_view kSequence = "  # seq_nr ";
  const std::size_t at = line.rfind(kSequence);
  if (at == std::string_view::npos) return;
  node.sequence = line.substr(at + kSequence.size());
  line = line.substr(0, at);
}

// add: "f32[2][1]cpu" = torch.ops.aten.add.Tensor(x, y);  x = y = None
bool take_node(std::string_view line, GraphNode& node) {
  const std::size_t name_end = line.find_first_of(": ");
  if (name_end == std::string_view::npos || !is_name(line.substr(0, name_end))) return false;
  node.name = line.substr(0, name_end);
  line.remove_prefix(name_end);
  if (line.starts_with(": \"")) {
    const std::size_t close = line.find('"', 3);
    if (close == std::string_view::npos) return false;
    take_annotation(line.substr(3, close - 3), node);
    line.remove_prefix(close + 1);
  }
  if (!line.starts_with(" = ")) return false;
  line.remove_prefix(3);
  const std::size_t call = line.find('(');
  node.operation = trimmed(line.substr(0, std::min(call, line.find(';'))));
  take_names(line.substr(call == std::string_view::npos ? 0 : call), node.inputs);
  return !node.operation.empty() && node.operation != "None";
}

// z += x;  z_1: "f32[2]" = z;  z = None
bool take_in_place(std::string_view line, GraphNode& node) {
  const std::size_t end = line.find(";  ");
  const std::size_t sign = line.find("= ");
  if (end == std::string_view::npos || sign > end) return false;
  const std::size_t name = line.find(' ');
  if (name >= sign || !is_name(line.substr(0, name))) return false;
  if (!take_node(line.substr(end + 3), node)) return false;
  node.inputs.clear();
  node.operation = line.substr(name + 1, sign - name);  // "+="
  take_names(line, node.inputs);
  return true;
}

}  // namespace

std::vector<GraphNode> read_graph(std::string_view text, std::size_t most) {
  std::vector<GraphNode> nodes;
  Place place;
  while (!text.empty() && nodes.size() < most) {
    std::string_view full = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(full.size() + 1, text.size()));
    const std::string_view line = trimmed(full);
    if (take_place(line, place)) continue;
    if (line.starts_with("# ")) place = {};  // "# No stacktrace found for following nodes"
    if (line.starts_with("def forward(")) {
      take_inputs(line, nodes, most);
      continue;
    }
    GraphNode node;
    std::string_view statement = line;
    take_sequence(statement, node);
    if (!take_node(statement, node) && !take_in_place(statement, node)) continue;
    node.line = place.line;
    node.code = place.code;
    node.module = place.module;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace dynprof
