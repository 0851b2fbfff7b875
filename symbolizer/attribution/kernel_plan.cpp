#include "symbolizer/attribution/kernel_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "symbolizer/attribution/cpp_kernel_lines.h"
#include "symbolizer/attribution/node_modules.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxNames = 1000;  // of one kernel
constexpr std::size_t kMaxCalls = 20'000;
constexpr std::size_t kMaxArguments = 10'000;  // bytes of one call
constexpr std::string_view kCompile = " = async_compile.";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

void add_once(std::vector<std::string>& to, std::string_view text) {
  text = trimmed(text);
  if (text.empty() || to.size() >= kMaxNames) return;
  if (std::find(to.begin(), to.end(), text) == to.end()) to.emplace_back(text);
}

void add_list(std::vector<std::string>& to, std::string_view list) {
  while (!list.empty()) {
    std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(one.size() + 1, list.size()));
    add_once(to, one);
  }
}

// What stands in brackets behind `name`.
std::string_view list_of(std::string_view line, std::string_view name) {
  std::size_t at = line.find(name);
  if (at == std::string_view::npos) return "";
  line.remove_prefix(at + name.size());
  return line.substr(0, line.find(']'));
}

class Reader {
 public:
  explicit Reader(std::size_t most) : most_(most) {}

  KernelPlan read(std::string_view text) {
    bool in_source = false;
    bool has_arguments = false;
    while (!text.empty()) {
      std::string_view full = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(full.size() + 1, text.size()));
      if (in_source) {  // of a kernel
        in_source = !full.starts_with("'''");
        continue;
      }
      const std::string_view line = trimmed(full);
      if (line.starts_with("def get_args(")) has_arguments = true;
      if (line.starts_with("def benchmark_compiled_module(")) {
        plan_.has_arguments = has_arguments;
        break;  // what follows calls nothing of its own
      }
      if (line.starts_with('#')) {
        take_comment(line);
      } else if (std::size_t at = line.find(kCompile); at != std::string_view::npos) {
        define(line.substr(0, at), line.substr(at + kCompile.size()));
        in_source = full.find("'''") != std::string_view::npos;
      } else {
        take_call(line);
      }
    }
    return std::move(plan_);
  }

 private:
  void take_comment(std::string_view line) {
    if (line.find("Source Nodes: [") != std::string_view::npos) {
      pending_ = PlannedKernel();
      add_list(pending_.sources, list_of(line, "Source Nodes: ["));
      add_list(pending_.operators, list_of(line, "Original ATen: ["));
    } else if (line.starts_with("#   %")) {
      if (line.find(" call_function[") == std::string_view::npos) return;
      line.remove_prefix(5);
      add_once(pending_.nodes, line.substr(0, line.find(' ')));
    } else if (std::size_t arrow = line.find(" => "); arrow != std::string_view::npos) {
      add_list(pending_.nodes, line.substr(arrow + 4));
    }
  }

  void define(std::string_view name, std::string_view language) {
    language = language.substr(0, language.find('('));
    PlannedKernel* kernel = place(name);
    if (kernel == nullptr) return;
    kernel->language = language.substr(0, language.find('_'));
    take_pending(*kernel);
  }

  // cpp_fused_relu_0(buf1), triton_poi_fused_0.run(...), extern_kernels.addmm(...),
  // buf3 = torch.ops.aten.sort.stable(...)
  void take_call(std::string_view line) {
    std::string_view callee = line.substr(0, line.find('('));
    if (callee.size() == line.size()) return;
    if (std::size_t equals = callee.find(" = "); equals != std::string_view::npos)
      callee.remove_prefix(equals + 3);
    if (callee.ends_with(".run")) callee.remove_suffix(4);
    auto known = places_.find(std::string(callee));
    const bool library = callee.starts_with("extern_kernels.") ||
                         callee.starts_with("torch.ops.") || callee.starts_with("aten.");
    if (known == places_.end() && !library) return;
    PlannedKernel* kernel = nullptr;
    if (!library) {
      kernel = &plan_.kernels[known->second];
    } else if (plan_.kernels.size() < most_) {  // each call of a library is a row
      kernel = &plan_.kernels.emplace_back();
      kernel->name = callee;
      kernel->language = "extern";
    }
    if (kernel == nullptr) return;
    ++kernel->launches;
    take_pending(*kernel);
    if (plan_.calls.size() < kMaxCalls)
      plan_.calls.push_back({static_cast<std::size_t>(kernel - plan_.kernels.data()),
                             std::string(line.substr(line.find('('), kMaxArguments))});
  }

  void take_pending(PlannedKernel& kernel) {
    for (const std::string& one : pending_.operators) add_once(kernel.operators, one);
    for (const std::string& one : pending_.sources) add_once(kernel.sources, one);
    for (const std::string& one : pending_.nodes) add_once(kernel.nodes, one);
    pending_ = PlannedKernel();
  }

  PlannedKernel* place(std::string_view name) {
    auto [known, added] = places_.try_emplace(std::string(name), plan_.kernels.size());
    if (!added) return &plan_.kernels[known->second];
    if (plan_.kernels.size() >= most_) {
      places_.erase(known);
      return nullptr;
    }
    plan_.kernels.emplace_back().name = name;
    return &plan_.kernels.back();
  }

  std::size_t most_;
  KernelPlan plan_;
  PlannedKernel pending_;  // what comments said of the next kernel
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace

std::string_view operator_packet(std::string_view operation) {
  constexpr std::string_view kOps = "torch.ops.";
  if (!operation.starts_with(kOps)) return operation;
  operation.remove_prefix(kOps.size());
  const std::size_t dot = operation.find('.');
  return operation.substr(0, operation.find('.', std::min(dot + 1, operation.size())));
}

std::string library_operator(std::string_view callee) {
  constexpr std::string_view kExtern = "extern_kernels.";
  if (callee.starts_with(kExtern)) return "aten." + std::string(callee.substr(kExtern.size()));
  if (callee.starts_with("aten."))
    return std::string(operator_packet("torch.ops." + std::string(callee)));
  return std::string(operator_packet(callee));
}

KernelPlan read_kernel_plan(std::string_view wrapper, std::size_t most) {
  return Reader(most).read(wrapper);
}

void add_lines(KernelPlan& plan, const std::vector<GraphNode>& post_grad) {
  std::unordered_map<std::string_view, const GraphNode*> by_name;
  std::unordered_map<std::string_view, std::vector<const GraphNode*>> by_operator;
  for (const GraphNode& node : post_grad) {
    by_name.emplace(node.name, &node);
    if (!node.operation.empty()) by_operator[operator_packet(node.operation)].push_back(&node);
  }
  for (PlannedKernel& kernel : plan.kernels) {
    for (const std::string& name : kernel.nodes) {
      auto node = by_name.find(name);
      if (node != by_name.end()) add_once(kernel.lines, node->second->line);
    }
    if (!kernel.nodes.empty()) continue;
    // The comment above a call of a library also has the operators of its arguments.
    const bool library = kernel.language == "extern";
    for (const std::string& name :
         library ? std::vector<std::string>{library_operator(kernel.name)} : kernel.operators) {
      auto nodes = by_operator.find(name);
      if (nodes == by_operator.end() || nodes->second.size() != 1) continue;
      add_once(kernel.nodes, nodes->second.front()->name);
      add_once(kernel.lines, nodes->second.front()->line);
    }
  }
  add_cpp_lines(plan, post_grad);
}

void add_modules(KernelPlan& plan, const std::vector<GraphNode>& post_grad,
                 const std::vector<GraphNode>& captured) {
  std::unordered_map<std::string_view, std::string_view> by_name;
  for (const GraphNode& node : captured)
    if (!node.module.empty()) by_name.emplace(node.name, node.module);
  const auto of_nodes = modules_of_nodes(post_grad, captured);
  for (PlannedKernel& kernel : plan.kernels) {
    // The comment above a call of a library also has the nodes of its arguments.
    const bool exact = kernel.language != "extern";
    for (const std::string& name : exact ? kernel.sources : std::vector<std::string>()) {
      const auto module = by_name.find(name);
      if (module != by_name.end()) add_once(kernel.modules, module->second);
    }
    if (!kernel.modules.empty()) continue;
    for (const std::string& name : kernel.nodes)
      if (const auto module = of_nodes.find(name); module != of_nodes.end())
        add_once(kernel.modules, module->second);
  }
}

std::string kernel_plan_json(const KernelPlan& plan) {
  auto list = [](const std::vector<std::string>& texts) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const std::string& text : texts) json.push_back(valid_utf8(text));
    return json;
  };
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const PlannedKernel& kernel : plan.kernels) {
    kernels.push_back({{"name", valid_utf8(kernel.name)},
                       {"language", valid_utf8(kernel.language)},
                       {"launches", kernel.launches},
                       {"operators", list(kernel.operators)},
                       {"source_nodes", list(kernel.sources)},
                       {"nodes", list(kernel.nodes)},
                       {"lines", list(kernel.lines)},
                       {"modules", list(kernel.modules)}});
  }
  nlohmann::ordered_json json = {{"benchmark", plan.has_arguments}, {"kernels", kernels}};
  return json.dump(1) + "\n";
}

}  // namespace dynprof
