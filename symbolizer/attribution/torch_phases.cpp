#include "symbolizer/attribution/torch_phases.h"

#include <charconv>
#include <unordered_map>

namespace dynprof {
namespace {

using enum Phase;
using enum NameMatch;

// Where a call of dynamo_timed gives a phase_name, torch's list of open phases holds that and its
// table of times the key: both are here. Wait counters are here too, less "pytorch.wait_counter.".
constexpr TorchPhaseRule kRules[] = {
    // Whole compiles. "dynamo" is there from 2.6 on; entire_frame_compile lies inside it.
    {"dynamo", kDynamo, PhaseRole::kForward},
    {"entire_frame_compile", kDynamo, PhaseRole::kForward},
    {"_compile.compile_inner", kDynamo, PhaseRole::kForward},
    {"entire_forward_compile", kDynamo, PhaseRole::kForward},  // wait counter
    {"entire_backward_compile", kAotAutograd, PhaseRole::kBackward},
    {"backward._backward_impl", kAotAutograd, PhaseRole::kBackward},
    {"compiled_autograd", kDynamo, PhaseRole::kCompiledAutograd},
    {"fullgraph_capture", kDynamo, PhaseRole::kExport},
    {"compile_fx_aot", kInductor, PhaseRole::kExport},

    // Dynamo.
    {"compile_attempt_", kDynamo, PhaseRole::kAttempt, kPrefix},
    {"bytecode_hooks_", kDynamo, PhaseRole::kNone, kPrefix},
    {"bytecode_tracing", kDynamo},
    {"insert_deferred_runtime_asserts", kDynamo},
    {"invoke_subgraph_", kDynamo, PhaseRole::kNone, kPrefix},
    {"debug_insert_nops", kDynamo},
    {"gc", kDynamo},
    {"dynamo_compile", kDynamo},  // wait counter: any compile
    {"TranslationValidator.validate", kDynamo},
    {"build_guards", kGuards},
    {"precompile_load_guards", kGuards},
    {"precompile_build_guards", kGuards},
    {"backend_compile", kBackend},
    {"OutputGraph.call_user_compiler", kBackend},
    {"after_deserialization", kBackend},
    {"inductor_import", kBackend},

    // AOTAutograd.
    {"compile_aot_autograd", kAotAutograd},  // wait counter
    {"create_aot_dispatcher_function", kAotAutograd},
    {"aot_collect_metadata", kAotAutograd},
    {"aot_trace_joint_graph", kAotAutograd},
    {"min_cut_rematerialization_partition", kAotAutograd},

    // Inductor: FX passes, lowering, scheduling, code generation.
    {"pass.", kInductor, PhaseRole::kNone, kPrefix},
    {"fx.bucketing.", kInductor, PhaseRole::kNone, kPrefix},
    {"GraphLowering.", kInductor, PhaseRole::kNone, kPrefix},
    {"Scheduler.", kInductor, PhaseRole::kNone, kPrefix},
    {"CUTLASSGemmTemplate.", kInductor, PhaseRole::kNone, kPrefix},
    {"compile_fx.<locals>.fw_compiler_base", kInductor},
    {"compile_fx.<locals>.bw_compiler", kInductor},
    {"inductor_compile", kInductor},
    {"compile_fx_inner", kInductor},
    {"compile_inductor", kInductor},  // wait counter
    {"fx_codegen_and_compile", kInductor},
    {"actual_codegen_and_compile", kInductor},  // wait counter
    {"_recursive_pre_grad_passes", kInductor},
    {"_recursive_joint_graph_passes", kInductor},
    {"_recursive_post_grad_passes", kInductor},
    {"additional_fake_tensor_prop", kInductor},
    {"convert_conv_weights_to_channels_last", kInductor},
    {"code_gen", kInductor},
    {"generate_kernel_code_from_nodes", kInductor},
    {"PythonWrapperCodegen.generate", kInductor},
    {"CppWrapperCpu.generate", kInductor},
    {"CppWrapperGpu.generate", kInductor},
    {"cutlass_utils.gen_ops", kInductor},
    {"CompiledArtifact.save", kInductor},

    // g++, Triton and their like, and getting ready for them.
    {"compile_file", kKernelCompile},
    {"run_command_and_check", kKernelCompile},
    {"cpp_wrapper_compile", kKernelCompile},
    {"AotCodeCompiler.compile", kKernelCompile},
    {"aoti_", kKernelCompile, PhaseRole::kNone, kPrefix},
    {"async_compile.precompile", kKernelCompile},
    {"compile_triton", kKernelCompile},  // wait counter
    {"reload_kernel_in_parent", kKernelCompile},
    {"StaticAutotunerFuture.warm_precompile", kKernelCompile},
    {"CachingAutotuner.slow_precompile_config", kKernelCompile},
    {"_template_precompiling", kKernelCompile, PhaseRole::kNone, kSuffix},

    // Waiting: for compilers in other processes and threads, for locks, for other ranks.
    {"async_compile.wait", kWait},
    {"filelock.enter", kWait},  // wait counter; filelock.region is the time the lock is held
    {"subproc_pool.", kWait, PhaseRole::kNone, kPrefix},  // wait counters
    {"guard_collective", kWait},
    {"compiler_collective", kWait},

    // Caches.
    {"pgo.", kCache, PhaseRole::kNone, kPrefix},
    {"AOTAutogradCache.inductor_load", kCache},
    {"inductor_codecache_torch_key", kCache},
    {"CacheBase.get_system.triton_key", kCache},
    {"PyCodeCache.load_by_key_path", kCache},
    {"TritonBundler.", kCache, PhaseRole::kNone, kPrefix},
    {"CompiledArtifact.load", kCache},
    {"GraphPickler.loads", kCache},

    // Autotuning.
    {"CachingAutotuner.benchmark_all_configs", kAutotune},
    {"CachingAutotuner.coordinate_descent_tuning", kAutotune},
    {"CachingAutotuner.combo_sequential_autotune", kAutotune},
    {"CachingAutotuner.synchronize", kAutotune},
    {"triton_autotuner", kAutotune},  // wait counter
    {"_template_autotuning", kAutotune, PhaseRole::kNone, kSuffix},
    {"benchmark_fused_nodes", kAutotune},
    {"benchmark_codegened_module", kAutotune},
    {"collective_compute_do_bench", kAutotune},
    {"offload_constants_", kAutotune, PhaseRole::kNone, kPrefix},
    {"pad_mm_benchmark", kAutotune},
    {"pad_mm_benchmark_get_do_bench", kAutotune},
    {"Benchmarker.benchmark", kAutotune, PhaseRole::kNone, kPart},  // 2.6, and subclasses in 2.9

    // CUDA graphs.
    {"cudagraphify", kCudagraphs, PhaseRole::kNone, kPrefix},
    {"CUDAGraphNode.record", kCudagraphs},
    {"CUDAGraphTreeManager.", kCudagraphs, PhaseRole::kNone, kPrefix},
};

constexpr std::string_view kWaitCounterPrefix = "pytorch.wait_counter.";
// Longer than any name of torch's: a target's string may be.
constexpr std::size_t kMaxName = 512;

const TorchPhaseRule* find_exact(std::string_view name) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const TorchPhaseRule*> rules;
    for (const TorchPhaseRule& rule : kRules) {
      if (rule.match == kExact) rules.emplace(rule.name, &rule);
    }
    return rules;
  }();
  auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

bool matches(const TorchPhaseRule& rule, std::string_view name) {
  switch (rule.match) {
    case kExact:
      return name == rule.name;
    case kPrefix:
      return name.starts_with(rule.name);
    case kSuffix:
      return name.ends_with(rule.name);
    case kPart:
      return name.find(rule.name) != std::string_view::npos;
  }
  return false;
}

// -1: not a number alone.
std::int32_t number_of(std::string_view text) {
  std::int32_t number = -1;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  bool whole = failure == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 ? number : -1;
}

}  // namespace

std::span<const TorchPhaseRule> torch_phase_rules() { return kRules; }

std::optional<TorchPhase> find_torch_phase(std::string_view name) {
  if (name.size() > kMaxName) return std::nullopt;
  if (name.starts_with(kWaitCounterPrefix)) name.remove_prefix(kWaitCounterPrefix.size());
  const TorchPhaseRule* found = find_exact(name);
  for (const TorchPhaseRule& rule : kRules) {
    if (found != nullptr) break;
    if (matches(rule, name)) found = &rule;
  }
  if (found == nullptr) return std::nullopt;
  TorchPhase phase{found->phase, found->role, -1};
  if (phase.role == PhaseRole::kAttempt) {
    phase.attempt = number_of(name.substr(found->name.size()));
    if (phase.attempt < 0) return std::nullopt;
  }
  return phase;
}

}  // namespace dynprof
