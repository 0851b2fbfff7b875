#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "symbolizer/base/text.h"
#include "symbolizer/export/call_graph.h"
#include "symbolizer/symbols/short_name.h"

namespace dynprof {
namespace {

constexpr std::size_t kNameColumns = 36;
constexpr std::size_t kFileColumns = 40;
constexpr std::size_t kTipColumns = 300;
constexpr std::size_t kMaxThroughShown = 12;

// The inside of a quoted string. A backslash begins an escape there, and an ampersand a character by name.
std::string quoted(std::string_view text, std::size_t columns, bool keep_tail = false) {
  std::string out;
  for (char c : truncate_columns(escape_terminal(text), columns, keep_tail)) {
    if (c == '&') {
      out += "&amp;";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string seconds(std::uint64_t ns) {
  const double s = static_cast<double>(ns) * 1e-9;
  return s >= 1 ? fmt::format("{:.2f} s", s) : fmt::format("{:.1f} ms", s * 1e3);
}

// From white to a strong orange; black text is legible on all of it.
std::string colour(double share_percent) {
  const double heat = std::sqrt(std::clamp(share_percent / 100, 0.0, 1.0));
  const auto mix = [&](int cold, int hot) {
    return static_cast<int>(std::lround(cold + (hot - cold) * heat));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0xfb, 0xff), mix(0xfb, 0xa0), mix(0xf8, 0x5a));
}

std::string base_with_line(const CallGraphNode& node) {
  const std::string file = quoted(base_name(node.file), kFileColumns, true);
  return node.line > 0 ? fmt::format("{}:{}", file, node.line) : file;
}

// Width of an edge, in points.
double pen_width(double share_percent) { return 0.5 + 3 * std::sqrt(share_percent / 100); }

}  // namespace

std::string dot_text(const CallGraph& graph, std::string_view title) {
  std::string out = "digraph calls {\n";
  const auto add = std::back_inserter(out);
  std::string heading = fmt::format("{}  ({})", quoted(title, 200), seconds(graph.ns));
  if (graph.left_out > 0)
    heading += fmt::format("\\n{} functions with less time are left out", graph.left_out);
  fmt::format_to(add,
                 "  graph [label=\"{}\", labelloc=t, fontname=\"sans-serif\", fontsize=12, "
                 "ranksep=0.22, nodesep=0.12, margin=0.1, size=\"18,10\"];\n"
                 "  node [shape=box, style=filled, color=\"#888888\", fontname=\"sans-serif\", "
                 "fontsize=10, height=0, width=0, margin=\"0.06,0.03\"];\n"
                 "  edge [fontname=\"sans-serif\", fontsize=8, arrowsize=0.5, "
                 "color=\"#666666\"];\n",
                 heading);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const CallGraphNode& node = graph.nodes[i];
    const double share = percent(node.ns, graph.ns), own = percent(node.own_ns, graph.ns);
    std::string label = quoted(short_name(node.name), kNameColumns);
    if (!node.file.empty()) label += "\\n" + base_with_line(node);
    label += fmt::format("\\n{:.1f}% {}", share, seconds(node.ns));
    if (own >= 0.05) label += fmt::format("  (own {:.1f}%)", own);
    fmt::format_to(add, "  n{} [label=\"{}\", fillcolor=\"{}\", tooltip=\"{}\\n{}:{}\"];\n", i,
                   label, colour(own), quoted(node.name, kTipColumns),
                   quoted(node.file, kTipColumns, true), node.line);
  }
  for (const CallGraphEdge& edge : graph.edges) {
    const double share = percent(edge.ns, graph.ns);
    std::string label = fmt::format("{:.1f}%", share);
    std::string tip;
    if (!edge.through.empty()) {
      label += fmt::format(", {} between", edge.through.size());
      for (std::size_t i = 0; i < std::min(edge.through.size(), kMaxThroughShown); ++i)
        tip += quoted(edge.through[i], kNameColumns) + "\\n";
      if (edge.through.size() > kMaxThroughShown)
        tip += fmt::format("and {} more", edge.through.size() - kMaxThroughShown);
    }
    fmt::format_to(add, "  n{} -> n{} [label=\"{}\", penwidth={:.2f}, tooltip=\"{}\"];\n",
                   edge.caller, edge.callee, label, pen_width(share), tip);
  }
  out += "}\n";
  return out;
}

}  // namespace dynprof
