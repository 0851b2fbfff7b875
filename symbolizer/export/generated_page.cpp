#include "symbolizer/export/generated_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "symbolizer/attribution/graph_text.h"
#include "symbolizer/attribution/kernel_plan.h"
#include "symbolizer/attribution/kernel_sources.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/export/guard_text.h"
#include "symbolizer/export/kernel_benchmark.h"
#include "symbolizer/export/markdown.h"

namespace dynprof {
namespace {

constexpr std::size_t kBlockLines = 400;
constexpr std::size_t kMaxGuards = 2000;
constexpr std::size_t kMaxNodes = 2000;
constexpr std::size_t kMaxKernels = 1000;
constexpr std::size_t kMaxChain = 200;  // lines
constexpr const char* kBenchmark = "benchmark_kernel";

using Indices = std::vector<std::uint32_t>;
// All pages together: the files of each directory, and the code of each compile.
struct Places {
  std::map<std::string, Indices> directories;
  std::map<std::pair<std::int32_t, TraceId>, std::uint32_t> codes;  // the first "bytecode"
};

std::string_view stem(std::string_view name) { return name.substr(0, name.rfind('.')); }

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + text;
  return out;
}

// "__compiled_fn_1_<uuid>" -> "__compiled_fn_1"
std::string short_name(std::string_view name) {
  constexpr std::string_view kCompiled = "__compiled_fn_";
  if (!name.starts_with(kCompiled)) return std::string(name);
  return std::string(name.substr(0, name.find('_', kCompiled.size())));
}

class Page {
 public:
  Page(const Attribution& attribution, const Generated& generated, const Decompiled& decompiled,
       const Places& places, const std::string& directory)
      : attribution_(attribution),
        generated_(generated),
        decompiled_(decompiled),
        places_(places),
        directory_(directory),
        files_(places.directories.at(directory)) {}

  std::vector<GeneratedPage> make() {
    append_title();
    append_source();
    append_chain();
    append_guards();
    append_code();
    append_graphs();
    append_kernels();
    append_files();
    pages_.push_back({directory_, "index", ".md", std::move(out_)});
    return std::move(pages_);
  }

 private:
  const GeneratedCopy& file(std::uint32_t index) const { return generated_.files()[index]; }
  std::string_view content(const GeneratedCopy& copy) const {
    return attribution_.recording().tables().blobs[copy.body];
  }
  template <class Visit>
  void each(std::string_view kind, const Visit& visit) const {
    for (std::uint32_t index : files_)
      if (file(index).kind == kind) visit(index, file(index));
  }

  void append_title() {
    const GeneratedCopy& first = file(files_.front());
    std::string function;
    each("bytecode", [&](std::uint32_t, const GeneratedCopy& copy) {
      if (function.empty()) function = copy.function;
    });
    out_ = fmt::format("# Compile {}{}\n", first.id.text(),
                       function.empty() ? "" : ": " + markdown_text(function));
  }

  void append_source() {
    each("source", [&](std::uint32_t, const GeneratedCopy& copy) {
      out_ += fmt::format("\n## Source\n\n{}, as the file is now: [{}]({})\n\n",
                          markdown_code(copy.origin), copy.name, copy.name);
      std::string numbered;
      std::string_view rest = content(copy);
      for (std::int32_t line = copy.first_line; !rest.empty(); ++line) {
        std::string_view text = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(text.size() + 1, rest.size()));
        numbered += fmt::format("{:>6}  {}\n", line, text);
      }
      out_ += markdown_block(numbered, "python", kBlockLines);
    });
  }

  void append_chain() {
    each("bytecode", [&](std::uint32_t index, const GeneratedCopy&) {
      out_ += "\n## Order of execution\n\n";
      std::set<std::uint32_t> seen;
      std::size_t lines = 0;
      append_calls(index, 0, seen, lines);
    });
    append_breaks();
  }

  // The graphs of a code, then where it goes on, and what that was compiled to.
  void append_calls(std::uint32_t index, std::size_t depth, std::set<std::uint32_t>& seen,
                    std::size_t& lines) {
    const GeneratedCopy& code = file(index);
    const std::string indent(2 * std::min<std::size_t>(depth, 20), ' ');
    if (++lines > kMaxChain) return;
    out_ += fmt::format("{}- compile {}: {}\n", indent, linked(code), markdown_code(code.function));
    if (!seen.insert(index).second) return;  // one that a loop resumes
    for (const GeneratedCallee& call : code.calls) {
      if (!call.graph || ++lines > kMaxChain) continue;
      out_ +=
          fmt::format("{}  - calls the graph {}\n", indent, markdown_code(short_name(call.name)));
    }
    for (const GeneratedCallee& call : code.calls) {
      if (call.graph || ++lines > kMaxChain) continue;
      out_ += fmt::format("{}  - graph break, then {} = {}\n", indent, markdown_code(call.name),
                          markdown_code(call.function));
      if (call.compiled_as.empty())
        out_ += fmt::format("{}    - no compile of it is known\n", indent);
      for (const TraceId& id : call.compiled_as) {
        auto next = places_.codes.find({code.pid, id});
        if (next != places_.codes.end()) {
          append_calls(next->second, depth + 2, seen, lines);
        } else {
          out_ += fmt::format("{}    - compile {}\n", indent, id.text());
        }
      }
    }
  }

  std::string linked(const GeneratedCopy& code) const {
    if (code.directory == directory_) return code.id.text();
    return fmt::format("[{}](../{}/index.md)", code.id.text(), code.directory);
  }

  void append_breaks() {
    std::set<std::string> shown;
    for (CompileIndex i = 0; i < attribution_.compiles().size(); ++i) {
      const Indices& own = generated_.of(i);
      if (own.empty() || file(own.front()).directory != directory_) continue;
      const std::vector<PastBreak>* breaks = attribution_.graph_breaks(i);
      if (breaks == nullptr) continue;
      for (const PastBreak& one : *breaks) {
        std::string text = fmt::format(
            "{} {}",
            one.file.empty() ? "" : markdown_code(fmt::format("{}:{}", one.file, one.line)),
            markdown_text(one.reason, 400));
        if (shown.size() < kMaxChain && shown.insert(text).second)
          out_ += fmt::format("\nGraph break: {}\n", text);
      }
    }
  }

  void append_guards() {
    each("guards", [&](std::uint32_t, const GeneratedCopy& copy) {
      const std::vector<GuardLine> guards = read_guard_file(content(copy), kMaxGuards);
      out_ += fmt::format("\n## Guards\n\n{} conditions for using the code: [{}]({})\n\n",
                          guards.size(), copy.name, copy.name);
      out_ += "| condition | source | because of |\n|---|---|---|\n";
      for (const GuardLine& guard : guards) {
        out_ += fmt::format("| {} | {} | {} |\n", markdown_code(guard.condition, 300),
                            markdown_code(guard.source), markdown_code(guard.reason));
      }
    });
  }

  void append_code() {
    for (std::string_view kind : {"bytecode", "resume_function"}) {
      each(kind, [&](std::uint32_t, const GeneratedCopy& copy) {
        out_ += fmt::format("\n## {}: {}\n\n",
                            kind == "bytecode" ? "What Dynamo made of it" : "Resume function",
                            markdown_code(copy.origin));
        append_one_code(copy);
      });
    }
  }

  void append_one_code(const GeneratedCopy& listing) {
    const GeneratedCopy* pyc = nullptr;
    auto source = decompiled_.end();
    each("code_object", [&](std::uint32_t index, const GeneratedCopy& copy) {
      if (stem(copy.name) != stem(listing.name)) return;
      pyc = &copy;
      source = decompiled_.find(index);
    });
    out_ += fmt::format("Listing: [{}]({})", listing.name, listing.name);
    if (pyc != nullptr) out_ += fmt::format(", code object: [{}]({})", pyc->name, pyc->name);
    out_ += "\n\n";
    if (pyc != nullptr && !pyc->problem.empty()) out_ += markdown_text(pyc->problem) + "\n\n";
    if (source != decompiled_.end()) {
      out_ += "Decompiled by depyf:\n\n" + markdown_block(source->second, "python", kBlockLines);
    } else {
      out_ += markdown_block(content(listing), "", kBlockLines);
    }
  }

  void append_graphs() {
    each("fx_graph", [&](std::uint32_t, const GeneratedCopy& copy) {
      out_ += fmt::format("\n## Graph: [{}]({})\n\n", copy.name, copy.name);
      out_ += markdown_block(content(copy), "python", kBlockLines);
      append_nodes(read_graph(content(copy), kMaxNodes));
    });
  }

  void append_nodes(const std::vector<GraphNode>& nodes) {
    const auto any = [&](auto field) {
      return std::any_of(nodes.begin(), nodes.end(),
                         [&](const GraphNode& node) { return !(node.*field).empty(); });
    };
    if (!any(&GraphNode::shape) && !any(&GraphNode::line)) return;
    const bool modules = any(&GraphNode::module), sequences = any(&GraphNode::sequence);
    out_ += fmt::format(
        "\n| node | operation | type | shape | strides | device | line |{}{}\n"
        "|---|---|---|---|---|---|---|{}{}\n",
        modules ? " nn.Module |" : "", sequences ? " seq_nr |" : "", modules ? "---|" : "",
        sequences ? "---|" : "");
    for (const GraphNode& node : nodes) {
      out_ += fmt::format("| {} | {} | {} | {} | {} | {} | {} |", markdown_code(node.name),
                          node.operation.empty() ? "(input)" : markdown_code(node.operation),
                          markdown_code(node.dtype), markdown_code(node.shape),
                          markdown_code(node.strides), markdown_code(node.device),
                          markdown_code(node.line));
      if (modules) out_ += fmt::format(" {} |", markdown_code(node.module));
      if (sequences) out_ += fmt::format(" {} |", markdown_code(node.sequence));
      out_ += "\n";
    }
  }

  void append_kernels() {
    each("wrapper", [&](std::uint32_t, const GeneratedCopy& copy) {
      KernelPlan plan = read_kernel_plan(content(copy), kMaxKernels);
      std::vector<GraphNode> post_grad;
      each("fx_graph", [&](std::uint32_t, const GeneratedCopy& graph) {
        if (graph.name.find("post_grad_graph") != std::string::npos &&
            graph.direction == copy.direction)
          post_grad = read_graph(content(graph), kMaxNodes);
      });
      add_lines(plan, post_grad);
      if (const GeneratedCopy* captured = captured_nodes(generated_.files(), copy))
        add_modules(plan, post_grad, read_graph(content(*captured), kMaxNodes));
      out_ += fmt::format("\n## Kernels of [{}]({})\n\n", copy.name, copy.name);
      out_ +=
          "| kernel | made by | launches | operators | graph nodes | lines | nn.Modules |\n"
          "|---|---|---|---|---|---|---|\n";
      for (const PlannedKernel& kernel : plan.kernels) {
        const std::vector<std::string>& nodes =
            kernel.nodes.empty() ? kernel.sources : kernel.nodes;
        out_ += fmt::format(
            "| {} | {} | {} | {} | {} | {} | {} |\n", markdown_code(kernel.name),
            markdown_text(kernel.language), kernel.launches,
            markdown_code(joined(kernel.operators), 400), markdown_code(joined(nodes), 400),
            markdown_code(joined(kernel.lines), 400), markdown_code(joined(kernel.modules), 400));
      }
      append_benchmark(copy, plan);
      pages_.push_back(
          {directory_, std::string(stem(copy.name)), "_plan.json", kernel_plan_json(plan)});
    });
  }

  // The wrapper has all that is needed: it is a program that runs the compiled graph with random inputs. A second one,
  // beside it, times its kernels.
  void append_benchmark(const GeneratedCopy& wrapper, const KernelPlan& plan) {
    if (!plan.has_arguments || wrapper.truncated) return;
    out_ += fmt::format("\nTo run it alone, with random inputs: `python3 {}`\n", wrapper.name);
    std::string timed, counted;
    for (const PlannedKernel& kernel : plan.kernels) {
      const bool plain = std::all_of(kernel.name.begin(), kernel.name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_';
      });
      if (kernel.language == "extern" || !plain || kernel.launches == 0) continue;
      timed += fmt::format("python3 {}.py {} {}\n", kBenchmark, wrapper.name, kernel.name);
      if (kernel.language != "triton") continue;
      counted +=
          fmt::format("ncu --kernel-name {} --launch-count 1 --set full python3 {}.py {} {}\n",
                      kernel.name, kBenchmark, wrapper.name, kernel.name);
    }
    if (timed.empty()) return;
    out_ += fmt::format("\nTo time a kernel of it:\n\n```sh\n{}```\n", timed);
    if (!counted.empty())
      out_ += fmt::format("\nTo profile one with Nsight Compute:\n\n```sh\n{}```\n", counted);
    if (!std::exchange(has_benchmark_, true))
      pages_.push_back({directory_, kBenchmark, ".py", std::string(kernel_benchmark())});
  }

  void append_files() {
    out_ += "\n## Files\n\n| file | kind | from |\n|---|---|---|\n";
    for (std::uint32_t index : files_) {
      const GeneratedCopy& copy = file(index);
      out_ += fmt::format("| [{}]({}) | {} | {} |\n", copy.name, copy.name,
                          markdown_text(copy.kind), markdown_code(copy.origin));
    }
  }

  const Attribution& attribution_;
  const Generated& generated_;
  const Decompiled& decompiled_;
  const Places& places_;
  const std::string& directory_;
  const Indices& files_;
  std::string out_;
  std::vector<GeneratedPage> pages_;
  bool has_benchmark_ = false;
};

}  // namespace

std::vector<GeneratedPage> generated_pages(const Attribution& attribution,
                                           const Generated& generated,
                                           const Decompiled& decompiled) {
  Places places;
  for (std::uint32_t i = 0; i < generated.files().size(); ++i) {
    const GeneratedCopy& copy = generated.files()[i];
    if (!is_valid(copy.id)) continue;
    places.directories[copy.directory].push_back(i);
    if (copy.kind == "bytecode") places.codes.try_emplace({copy.pid, copy.id}, i);
  }
  std::vector<GeneratedPage> pages;
  for (const auto& [directory, files] : places.directories) {
    Page page(attribution, generated, decompiled, places, directory);
    for (GeneratedPage& one : page.make()) pages.push_back(std::move(one));
  }
  return pages;
}

}  // namespace dynprof
