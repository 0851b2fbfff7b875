#include "symbolizer/attribution/phases.h"

#include <string_view>
#include <unordered_map>

#include "symbolizer/python/python_version.h"

namespace dynprof {
namespace {

constexpr FrameRole kPhase = FrameRole::kPhase;
using enum Phase;

// torch 2.6 to 2.14; a name that only some versions have costs nothing in the others. Innermost
// wins, so an outer function may be listed with a coarse phase and its callees with finer ones.
constexpr FrameRule kRules[] = {
    // Dynamo: symbolic execution, bytecode, restarts.
    {"torch/_dynamo/convert_frame.py", "_compile", FrameRole::kCompileEntry, kDynamo},
    {"torch/_dynamo/convert_frame.py", "compile_frame", FrameRole::kAttemptEntry, kDynamo},
    {"torch/_dynamo/convert_frame.py", "trace_frame", kPhase, kDynamo},
    {"torch/_dynamo/output_graph.py", "OutputGraph.compile_subgraph", kPhase, kDynamo},
    {"torch/_dynamo/convert_frame.py", "DynamoOutput.build_guards", kPhase, kGuards},
    {"torch/_dynamo/convert_frame.py", "GraphCaptureOutput.build_guards", kPhase, kGuards},
    {"torch/_dynamo/guards.py", "CheckFunctionManager.__init__", kPhase, kGuards},
    {"torch/_dynamo/guards.py", "CheckFunctionManager.build_guards", kPhase, kGuards},
    {"torch/_dynamo/guards.py", "CheckFunctionManager.compile_check_fn", kPhase, kGuards},
    {"torch/_dynamo/output_graph.py", "OutputGraph.call_user_compiler", kPhase, kBackend},
    {"torch/_dynamo/output_graph.py", "OutputGraph._call_user_compiler", kPhase, kBackend},
    {"torch/_dynamo/pgo.py", "put_code_state", kPhase, kCache},
    {"torch/_dynamo/pgo.py", "get_code_state", kPhase, kCache},
    {"torch/_dynamo/package.py", "CompilePackage.install", kPhase, kCache},

    // AOTAutograd.
    {"torch/_functorch/aot_autograd.py", "aot_module_simplified", kPhase, kAotAutograd},
    {"torch/_functorch/aot_autograd.py", "prepare_aot_module_simplified", kPhase, kAotAutograd},
    {"torch/_functorch/aot_autograd.py", "create_aot_state", kPhase, kAotAutograd},
    {"torch/_functorch/aot_autograd.py", "create_aot_dispatcher_function", kPhase, kAotAutograd},
    {"torch/_functorch/aot_autograd.py", "_create_aot_dispatcher_function", kPhase, kAotAutograd},
    {"torch/_functorch/aot_autograd.py", "aot_export_joint_with_descriptors", kPhase, kAotAutograd},
    {"torch/_functorch/aot_autograd.py", "aot_compile_joint_with_descriptors", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "aot_stage1_graph_capture", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "aot_stage2_compile", kPhase, kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "aot_stage2_inference", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "aot_stage2_autograd", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "aot_stage2_export", kPhase, kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "_aot_stage2a_partition", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "_aot_stage2b_fw_compile", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "_aot_stage2b_bw_compile", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "_aot_stage2b_compile_forward_or_inference",
     kPhase, kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_compile.py", "_aot_stage2b_inference_compile", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/jit_compile_runtime_wrappers.py", "aot_dispatch_base", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/jit_compile_runtime_wrappers.py", "aot_dispatch_autograd",
     kPhase, kAotAutograd},
    {"torch/_functorch/_aot_autograd/dispatch_and_compile_graph.py", "aot_dispatch_base_graph",
     kPhase, kAotAutograd},
    {"torch/_functorch/_aot_autograd/dispatch_and_compile_graph.py", "aot_dispatch_autograd_graph",
     kPhase, kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_capture.py", "aot_dispatch_base_graph", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/graph_capture.py", "aot_dispatch_autograd_graph", kPhase,
     kAotAutograd},
    {"torch/_functorch/_aot_autograd/collect_metadata_analysis.py",
     "run_functionalized_fw_and_collect_metadata.<locals>.inner", kPhase, kAotAutograd},
    {"torch/_functorch/partitioners.py", "min_cut_rematerialization_partition", kPhase,
     kAotAutograd},
    {"torch/_functorch/partitioners.py", "default_partition", kPhase, kAotAutograd},
    {"torch/_functorch/_aot_autograd/autograd_cache.py", "AOTAutogradCache.load", kPhase, kCache},
    {"torch/_functorch/_aot_autograd/autograd_cache.py", "AOTAutogradCache.try_load", kPhase,
     kCache},
    {"torch/_functorch/_aot_autograd/autograd_cache.py", "AOTAutogradCache._lookup", kPhase,
     kCache},
    {"torch/_functorch/_aot_autograd/autograd_cache.py", "AOTAutogradCache.save", kPhase, kCache},

    // Lazy backward: 2.13 and later; then 2.6 to 2.12, where the same frame also runs the result.
    {"torch/_functorch/_aot_autograd/runtime_wrappers.py",
     "_AutogradBackwardCompiler.get_or_compile", FrameRole::kBackwardEntry, kAotAutograd},
    {"torch/_functorch/_aot_autograd/runtime_wrappers.py",
     "AOTDispatchAutograd.post_compile.<locals>.CompiledFunction._backward_impl",
     FrameRole::kBackwardEntry, kAotAutograd},
    {"torch/_functorch/_aot_autograd/utils.py", "call_func_at_runtime_with_args", FrameRole::kRun,
     kRuntime},

    // Inductor: FX passes, lowering, scheduling, code generation.
    {"torch/_inductor/compile_fx.py", "compile_fx", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_compile_fx_main", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_maybe_wrap_and_compile_fx_main", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "compile_fx_aot", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "compile_fx.<locals>.fw_compiler_base", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "compile_fx.<locals>.bw_compiler", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_compile_fx_main.<locals>.fw_compiler_base", kPhase,
     kInductor},
    {"torch/_inductor/compile_fx.py", "_compile_fx_main.<locals>.bw_compiler", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "fw_compiler_freezing", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "compile_fx_forward", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "compile_fx_backward", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "compile_fx_inner", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_compile_fx_inner", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "fx_codegen_and_compile", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_InProcessFxCompile.codegen_and_compile", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_recursive_pre_grad_passes", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_recursive_joint_graph_passes", kPhase, kInductor},
    {"torch/_inductor/compile_fx.py", "_recursive_post_grad_passes", kPhase, kInductor},
    {"torch/_inductor/graph.py", "GraphLowering.__init__", kPhase, kInductor},
    {"torch/_inductor/graph.py", "GraphLowering.run", kPhase, kInductor},
    {"torch/_inductor/graph.py", "GraphLowering.codegen", kPhase, kInductor},
    {"torch/_inductor/graph.py", "GraphLowering.codegen_with_cpp_wrapper", kPhase, kInductor},
    {"torch/_inductor/graph.py", "GraphLowering.compile_to_module", kPhase, kInductor},
    {"torch/_inductor/graph.py", "GraphLowering._compile_to_module", kPhase, kInductor},
    {"torch/_inductor/scheduler.py", "Scheduler.__init__", kPhase, kInductor},
    {"torch/_inductor/scheduler.py", "Scheduler._init", kPhase, kInductor},
    {"torch/_inductor/scheduler.py", "Scheduler.codegen", kPhase, kInductor},
    {"torch/_inductor/scheduler.py", "Scheduler._codegen", kPhase, kInductor},
    {"torch/_inductor/codegen/wrapper.py", "PythonWrapperCodegen.generate", kPhase, kInductor},
    {"torch/_inductor/codegen/wrapper.py", "PythonWrapperCodegen._generate", kPhase, kInductor},
    {"torch/_inductor/standalone_compile.py", "standalone_compile", kPhase, kInductor},

    // Kernel compilers: g++ and Triton, and getting ready for them.
    {"torch/_inductor/codecache.py", "AotCodeCompiler.compile", kPhase, kKernelCompile},
    {"torch/_inductor/codecache.py", "CppCodeCache.load_async", kPhase, kKernelCompile},
    {"torch/_inductor/codecache.py", "CppCodeCache.load", kPhase, kKernelCompile},
    {"torch/_inductor/codecache.py", "CppPythonBindingsCodeCache.load_pybinding_async", kPhase,
     kKernelCompile},
    {"torch/_inductor/codecache.py", "CppPythonBindingsCodeCache.load_pybinding", kPhase,
     kKernelCompile},
    {"torch/_inductor/codecache.py", "_worker_compile_cpp", kPhase, kKernelCompile},
    {"torch/_inductor/codecache.py", "_load_triton_kernel_from_source", kPhase, kKernelCompile},
    {"torch/_inductor/cpp_builder.py", "run_compile_cmd", kPhase, kKernelCompile},
    {"torch/_inductor/cpp_builder.py", "_run_compile_cmd", kPhase, kKernelCompile},
    {"torch/_inductor/cpp_builder.py", "CppBuilder.build", kPhase, kKernelCompile},
    {"torch/_inductor/cpp_builder.py", "get_cpp_compiler", kPhase, kKernelCompile},
    {"torch/_inductor/cpu_vec_isa.py", "VecISA.check_build", kPhase, kKernelCompile},
    {"torch/_inductor/async_compile.py", "AsyncCompile.triton", kPhase, kKernelCompile},
    {"torch/_inductor/async_compile.py", "AsyncCompile.cpp", kPhase, kKernelCompile},
    {"torch/_inductor/async_compile.py", "AsyncCompile.cpp_pybinding", kPhase, kKernelCompile},
    {"torch/_inductor/runtime/compile_tasks.py", "_worker_compile_triton", kPhase, kKernelCompile},
    {"torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.precompile", kPhase,
     kKernelCompile},
    {"torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner._precompile_config", kPhase,
     kKernelCompile},
    {"torch/_inductor/compile_worker/subproc_pool.py", "SubprocMain.do_job", kPhase,
     kKernelCompile},
    {"triton/compiler/compiler.py", "compile", kPhase, kKernelCompile},

    // Waiting for them, and for locks between processes.
    {"torch/_inductor/async_compile.py", "AsyncCompile.wait", kPhase, kWait},
    {"torch/_inductor/async_compile.py", "AsyncCompile._wait_futures", kPhase, kWait},
    {"filelock/_api.py", "BaseFileLock.acquire", kPhase, kWait},

    // Caches.
    {"torch/_inductor/codecache.py", "FxGraphCache.prepare_key", kPhase, kCache},
    {"torch/_inductor/codecache.py", "FxGraphCache.load_with_key", kPhase, kCache},
    {"torch/_inductor/codecache.py", "FxGraphCache._lookup_graph", kPhase, kCache},
    {"torch/_inductor/codecache.py", "FxGraphCache._save_graph", kPhase, kCache},
    {"torch/_inductor/codecache.py", "compiled_fx_graph_hash", kPhase, kCache},
    {"torch/_inductor/codecache.py", "torch_key", kPhase, kCache},
    {"torch/_inductor/codecache.py", "PyCodeCache.load_by_key_path", kPhase, kCache},

    // Autotuning.
    {"torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.benchmark_all_configs",
     kPhase, kAutotune},
    {"torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.autotune_to_one_config",
     kPhase, kAutotune},
    {"torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.coordinate_descent_tuning",
     kPhase, kAutotune},
    {"torch/_inductor/select_algorithm.py", "AlgorithmSelectorCache.__call__", kPhase, kAutotune},
    {"torch/_inductor/select_algorithm.py", "AlgorithmSelectorCache.do_autotuning", kPhase,
     kAutotune},
    {"torch/_inductor/select_algorithm.py", "AlgorithmSelectorCache.benchmark_choices", kPhase,
     kAutotune},
    {"torch/_inductor/scheduler.py", "Scheduler.benchmark_fused_nodes", kPhase, kAutotune},
    {"torch/_inductor/scheduler.py", "Scheduler.benchmark_codegened_module", kPhase, kAutotune},

    // CUDA graphs: warm-up and recording. Replaying is the program's own run time.
    {"torch/_inductor/cudagraph_trees.py", "cudagraphify", kPhase, kCudagraphs},
    {"torch/_inductor/cudagraph_trees.py", "CUDAGraphTreeManager.record_function", kPhase,
     kCudagraphs},
    {"torch/_inductor/cudagraph_trees.py", "CUDAGraphTreeManager.run_eager", kPhase, kCudagraphs},
    {"torch/_inductor/cudagraph_trees.py", "CUDAGraphTreeManager.add_function", kPhase,
     kCudagraphs},
    {"torch/_inductor/cudagraph_trees.py", "CUDAGraphNode.__init__", kPhase, kCudagraphs},
    {"torch/_inductor/cudagraph_trees.py", "CUDAGraphNode._record", kPhase, kCudagraphs},
    {"torch/_inductor/output_code.py", "cudagraph_post_compile", kPhase, kCudagraphs},
};

bool ends_with_path(std::string_view path, std::string_view suffix) {
  if (!path.ends_with(suffix)) return false;
  return path.size() == suffix.size() || path[path.size() - suffix.size() - 1] == '/';
}

std::string_view last_component(std::string_view qualname) {
  std::size_t dot = qualname.rfind('.');
  return dot == std::string_view::npos ? qualname : qualname.substr(dot + 1);
}

using RuleIndex = std::unordered_multimap<std::string_view, const FrameRule*>;

RuleIndex index_by(std::string_view (*key)(std::string_view)) {
  RuleIndex index;
  for (const FrameRule& rule : kRules) index.emplace(key(rule.qualname), &rule);
  return index;
}

const FrameRule* find_rule(const RuleIndex& index, std::string_view name, std::string_view file) {
  auto [begin, end] = index.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    if (ends_with_path(file, it->second->file)) return it->second;
  }
  return nullptr;
}

std::vector<const FrameRule*> classify_codes(const Tables& tables) {
  RuleIndex by_qualname = index_by([](std::string_view name) { return name; });
  RuleIndex by_name = index_by(last_component);
  std::vector<const FrameRule*> rules;
  rules.reserve(tables.codes.size());
  for (const Code& code : tables.codes) {
    const FrameRule* rule = nullptr;
    if (code.unreadable == Unreadable::kNo) {
      std::string_view file = tables.strings[code.filename];
      rule = code.python == python_version(3, 10)
                 ? find_rule(by_name, tables.strings[code.name], file)
                 : find_rule(by_qualname, tables.strings[code.qualname], file);
    }
    rules.push_back(rule);
  }
  return rules;
}

void enter(StackPhase& stack, const FrameRule& rule) {
  switch (rule.role) {
    case FrameRole::kNone:
      return;
    case FrameRole::kRun:
      stack.backward_ran = stack.backward_ran || stack.backward_entry;
      stack.backward_entry = stack.backward_work = false;
      if (!stack.compile_entry && !stack.attempt_entry) stack.phase = Phase::kRuntime;
      return;
    case FrameRole::kCompileEntry:
      stack = StackPhase{.compile_entry = true, .begins_compile = true};
      break;
    case FrameRole::kBackwardEntry:
      stack = StackPhase{.backward_entry = true, .begins_compile = true};
      break;
    case FrameRole::kAttemptEntry:
      stack.attempt_entry = true;
      stack.backward_work = stack.backward_entry;
      break;
    case FrameRole::kPhase:
      stack.backward_work = stack.backward_entry;
      break;
  }
  stack.phase = rule.phase;
}

}  // namespace

const char* phase_text(Phase phase) {
  switch (phase) {
    case Phase::kRuntime:
      return "runtime";
    case Phase::kUnattributed:
      return "unattributed";
    case Phase::kDynamo:
      return "dynamo";
    case Phase::kGuards:
      return "guards";
    case Phase::kAotAutograd:
      return "aot_autograd";
    case Phase::kInductor:
      return "inductor";
    case Phase::kKernelCompile:
      return "kernel_compile";
    case Phase::kWait:
      return "wait";
    case Phase::kCache:
      return "cache";
    case Phase::kAutotune:
      return "autotune";
    case Phase::kCudagraphs:
      return "cudagraphs";
    case Phase::kBackend:
      return "backend";
    case Phase::kCount:
      break;
  }
  return "runtime";
}

const std::vector<FrameRule>& frame_rules() {
  static const std::vector<FrameRule> rules(std::begin(kRules), std::end(kRules));
  return rules;
}

std::vector<StackPhase> classify_stacks(const Tables& tables) {
  std::vector<const FrameRule*> rules = classify_codes(tables);
  std::vector<StackPhase> stacks(tables.stacks.size());
  for (StackId id = 1; id < stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    // A caller is always written before its callee; anything else is damage, taken as the root.
    if (node.caller < id) stacks[id] = stacks[node.caller];
    stacks[id].begins_compile = false;
    const Frame& frame = tables.frames[node.frame];
    if (frame.kind != FrameKind::kPython) continue;
    if (const FrameRule* rule = rules[frame.code]) enter(stacks[id], *rule);
  }
  return stacks;
}

}  // namespace dynprof
