#include "symbolizer/report/suggestions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::size_t kMaxPlaces = 3;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, std::min<std::size_t>(text.find('\n'), 1000)));
}

// "model.py:7" of "Block.forward model.py:7".
std::string line_of(const Recompiles& group) {
  return group.place.substr(group.place.rfind(' ') + 1);
}

// ---- recompiles --------------------------------------------------------------------------------

using Dimension = std::pair<std::string, std::uint32_t>;

std::set<Dimension> changing_dimensions(const Recompiles& group) {
  std::set<Dimension> dimensions;
  for (const std::string& reason : group.reasons) {
    SizeMismatch one;
    if (find_size_mismatch(first_line(reason), one)) dimensions.emplace(one.tensor, one.dimension);
  }
  return dimensions;
}

bool one_dimension(const Recompiles& group, std::string& change) {
  const std::set<Dimension> dimensions = changing_dimensions(group);
  if (dimensions.size() != 1) return false;
  const auto& [tensor, dimension] = *dimensions.begin();
  change = fmt::format("mark_dynamic({}, {})", tensor, dimension) + change;
  return true;
}

bool several_dimensions(const Recompiles& group, std::string&) {
  return changing_dimensions(group).size() > 1;
}

// ---- numbers -----------------------------------------------------------------------------------

bool limit_reached(const Findings& findings, Suggestion& suggestion) {
  std::size_t more = 0;
  for (const Recompiles& group : findings.recompiles) {
    if (group.limit.empty()) continue;
    if (!suggestion.evidence.empty()) {
      ++more;
      continue;
    }
    suggestion.evidence = fmt::format("{} hit torch's limit", line_of(group));
    suggestion.cost_ns = group.cost_ns;
  }
  if (more > 0)
    suggestion.evidence +=
        fmt::format(", and {} more {}", more, more == 1 ? "function" : "functions");
  return !suggestion.evidence.empty();
}

bool cold_cache(const Findings& findings, Suggestion& suggestion) {
  const PastCaches& caches = findings.caches;
  if (!findings.caches_known || caches.fx_hits + caches.aot_hits > 0) return false;
  if (caches.fx_misses + caches.aot_misses == 0 || findings.groups_are_cpu) return false;
  const std::uint64_t kept =
      findings.groups.of(PhaseGroup::kAot) + findings.groups.of(PhaseGroup::kInductor) +
      findings.groups.of(PhaseGroup::kKernel) + findings.groups.of(PhaseGroup::kAutotune);
  if (kept < kSecond) return false;
  suggestion.cost_ns = kept;
  suggestion.evidence = fmt::format("{} misses, no hit: {:.2f} s",
                                    caches.fx_misses + caches.aot_misses, seconds(kept));
  return true;
}

bool no_cpu_free(const Findings& findings, Suggestion& suggestion) {
  if (findings.runnable_ns * 10 <= findings.scheduled_ns) return false;
  if (findings.runnable_ns < kSecond / 10) return false;
  suggestion.cost_ns = findings.runnable_ns;
  suggestion.evidence = fmt::format(
      "for {:.2f} s, {:.0f} % of compile time, no CPU was free", seconds(findings.runnable_ns),
      100 * static_cast<double>(findings.runnable_ns) / static_cast<double>(findings.scheduled_ns));
  return true;
}

bool much_autotuning(const Findings& findings, Suggestion& suggestion) {
  const std::uint64_t ns = findings.groups.of(PhaseGroup::kAutotune);
  if (ns * 5 < findings.groups.whole() || ns < kSecond / 10) return false;
  suggestion.cost_ns = ns;
  suggestion.evidence =
      fmt::format("autotuning took {:.2f} s, {:.0f} % of compile time", seconds(ns),
                  100 * static_cast<double>(ns) / static_cast<double>(findings.groups.whole()));
  return true;
}

bool lock_waits(const Findings& findings, Suggestion& suggestion) {
  std::uint64_t sum = 0;
  for (const auto& [tid, ns] : findings.lock_waits) sum += ns;
  if (sum < kSecond / 10) return false;
  const auto& [tid, ns] = findings.lock_waits.front();
  suggestion.cost_ns = sum;
  suggestion.evidence =
      fmt::format("thread {} waited {:.2f} s for the compile lock", tid, seconds(ns));
  if (std::size_t more = findings.lock_waits.size() - 1; more > 0)
    suggestion.evidence += fmt::format(", {} more {} {:.2f} s", more,
                                       more == 1 ? "thread" : "threads", seconds(sum - ns));
  return true;
}

bool triton_stalls(const Findings& findings, Suggestion& suggestion) {
  if (findings.triton_ns < kSecond / 10) return false;
  suggestion.cost_ns = findings.triton_ns;
  suggestion.evidence =
      fmt::format("Triton compiled {} for {:.2f} s while callers waited, {}",
                  findings.triton_kernels == 1 ? "a kernel"
                                               : fmt::format("{} kernels", findings.triton_kernels),
                  seconds(findings.triton_ns), findings.triton_first);
  return true;
}

using enum EvidenceIn;

// Reasons in the words of torch 2.6 to 2.15.
constexpr SuggestionRule kRules[] = {
    {"one-dimension", kRecompileReason, "size mismatch at index", " or dynamic=True",
     one_dimension},
    {"several-dimensions", kRecompileReason, "size mismatch at index",
     "torch.compile(dynamic=True), as several sizes change", several_dimensions},
    {"rank", kRecompileReason, "rank mismatch",
     "pass tensors with one number of dimensions, or compile a function for each"},
    {"dtype", kRecompileReason, "dtype mismatch", "pass tensors of one dtype"},
    {"stride", kRecompileReason, "stride mismatch",
     "pass tensors of one memory layout, for example x.contiguous()"},
    {"requires-grad", kRecompileReason, "requires_grad mismatch",
     "pass tensors with one value of requires_grad"},
    {"dispatch-keys", kRecompileReason, "dispatch key set mismatch",
     "call it in one mode: no_grad, inference_mode and autocast differ"},
    {"device", kRecompileReason, "device index mismatch", "compile a function for each device"},
    {"global-state", kRecompileReason, "GLOBAL_STATE changed",
     "call it in one state of grad mode, autocast and threads"},
    {"grad-mode", kRecompileReason, "grad_mode", "call it in one grad mode"},
    {"module-integer", kRecompileReason, "allow_unspec_int_on_nn_module",
     "torch._dynamo.config.allow_unspec_int_on_nn_module = True"},
    {"identity", kRecompileReason, "check_obj_id", "pass the same object at each call"},
    {"length", kRecompileReason, "len(", "pass containers of one length"},
    {"constant", kRecompileReason, " == ", "pass the Python value that changes as a tensor"},

    {"graph-break-call", kBreakReason, "torch._dynamo.graph_break()",
     "remove the call of torch._dynamo.graph_break()"},
    {"print", kBreakReason, "`print`",
     "torch._dynamo.config.reorderable_logging_functions.add(print)"},
    {"print-2.6", kBreakReason, "BuiltinVariable(print)",
     "torch._dynamo.config.reorderable_logging_functions.add(print)"},
    {"logger", kBreakReason, "logging.Logger method",
     "log outside, or torch._dynamo.config.ignore_logger_methods"},
    {"item", kBreakReason, "Tensor.item",
     "keep it a tensor, or torch._dynamo.config.capture_scalar_outputs"},
    {"dynamic-output", kBreakReason, "ynamic shape operator",
     "torch._dynamo.config.capture_dynamic_output_shape_ops = True"},
    {"branch", kBreakReason, "Data-dependent branching",
     "torch.where or torch.cond instead of a branch on a tensor's value"},
    {"branch-2.6", kBreakReason, "generic_jump",
     "torch.where or torch.cond instead of a branch on a tensor's value"},
    {"disabled", kBreakReason, "torch.compiler.disable",
     "remove torch.compiler.disable there, if Dynamo can trace it"},
    {"skipped", kBreakReason, "marked as skipped",
     "make what is called there an operator: torch.library.custom_op"},
    {"context-manager", kBreakReason, "nsupported context manager",
     "enter the context manager outside of the compiled function"},

    {"recompile-limit", kNumbers, "",
     "remove the cause, or raise torch._dynamo.config.recompile_limit", nullptr, limit_reached},
    {"cold-cache", kNumbers, "", "keep TORCHINDUCTOR_CACHE_DIR for the next run", nullptr,
     cold_cache},
    {"no-cpu-free", kNumbers, "", "more CPUs or fewer threads", nullptr, no_cpu_free},
    {"autotuning", kNumbers, "", "leave out mode=\"max-autotune\" where it does not pay", nullptr,
     much_autotuning},
    {"compile-lock", kNumbers, "", "call the function once before the threads start", nullptr,
     lock_waits},
    {"triton-kernels", kNumbers, "",
     "call each Triton kernel once before serving, and list arguments that change in "
     "do_not_specialize",
     nullptr, triton_stalls},
};

const SuggestionRule* rule_for(EvidenceIn in, std::string_view reason, const Recompiles* group,
                               std::string& change) {
  for (const SuggestionRule& rule : kRules) {
    if (rule.in != in || reason.find(rule.text) == std::string_view::npos) continue;
    change = rule.change;
    if (rule.fits != nullptr && (group == nullptr || !rule.fits(*group, change))) continue;
    return &rule;
  }
  return nullptr;
}

void add_recompiles(const Findings& findings, std::vector<Suggestion>& suggestions) {
  for (const Recompiles& group : findings.recompiles) {
    struct Fit {
      std::string change;
      std::size_t count = 0;
    };
    std::map<const SuggestionRule*, Fit> fits;
    for (const std::string& reason : group.reasons) {
      std::string change;
      const SuggestionRule* rule = rule_for(kRecompileReason, first_line(reason), &group, change);
      if (rule == nullptr) continue;
      Fit& fit = fits[rule];
      if (fit.count++ == 0) fit.change = std::move(change);
    }
    for (auto& [rule, fit] : fits) {
      const auto share = static_cast<double>(fit.count) / static_cast<double>(group.reasons.size());
      const auto cost = static_cast<std::uint64_t>(static_cast<double>(group.cost_ns) * share);
      suggestions.push_back(
          {rule->name, std::move(fit.change),
           fmt::format("{} recompiled {}, {:.2f} s", line_of(group),
                       fit.count == 1 ? "once" : fmt::format("{} times", fit.count), seconds(cost)),
           cost});
    }
  }
}

void add_breaks(const Findings& findings, std::vector<Suggestion>& suggestions) {
  struct Fit {
    std::uint64_t count = 0;
    std::vector<std::string> places;
    std::size_t more = 0;
  };
  std::map<const SuggestionRule*, Fit> fits;
  for (const BreakPlace& one : findings.breaks) {
    std::string change;
    if (one.intended) continue;
    const SuggestionRule* rule = rule_for(kBreakReason, one.text, nullptr, change);
    if (rule == nullptr) continue;
    Fit& fit = fits[rule];
    fit.count += one.count;
    if (one.file.empty()) continue;
    if (fit.places.size() < kMaxPlaces) {
      fit.places.push_back(fmt::format("{}:{}", base_name(one.file), one.line));
    } else {
      ++fit.more;
    }
  }
  for (const auto& [rule, fit] : fits) {
    std::string evidence =
        fit.count == 1 ? "a graph break" : fmt::format("{} graph breaks", fit.count);
    if (!fit.places.empty()) evidence += fmt::format(" at {}", fmt::join(fit.places, ", "));
    if (fit.more > 0) evidence += fmt::format(" and {} more lines", fit.more);
    suggestions.push_back({rule->name, std::string(rule->change), std::move(evidence), 0});
  }
}

}  // namespace

std::span<const SuggestionRule> suggestion_rules() { return kRules; }

std::vector<Suggestion> suggest(const Findings& findings) {
  std::vector<Suggestion> suggestions;
  add_recompiles(findings, suggestions);
  add_breaks(findings, suggestions);
  for (const SuggestionRule& rule : kRules) {
    if (rule.judge == nullptr) continue;
    Suggestion one{.rule = rule.name, .change = std::string(rule.change), .evidence = {}};
    if (rule.judge(findings, one)) suggestions.push_back(std::move(one));
  }
  std::stable_sort(suggestions.begin(), suggestions.end(),
                   [](const Suggestion& a, const Suggestion& b) { return a.cost_ns > b.cost_ns; });
  return suggestions;
}

}  // namespace dynprof
