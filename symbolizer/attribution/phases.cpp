#include "symbolizer/attribution/phases.h"

#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "symbolizer/base/enum_text.h"
#include "symbolizer/python/python_version.h"

namespace dynprof {
namespace {

using enum Phase;

// Functions of one file that mark the same.
struct FileRules {
  const char* file;
  Phase phase;
  std::initializer_list<const char*> qualnames;
  FrameRole role = FrameRole::kPhase;
};

// torch 2.6 to 2.14; a name that only some versions have costs nothing in the others. Innermost
// wins, so an outer function may be listed with a coarse phase and its callees with finer ones.
constexpr FileRules kRules[] = {
    // Dynamo: symbolic execution, bytecode, restarts.
    {"torch/_dynamo/convert_frame.py", kDynamo, {"_compile"}, FrameRole::kCompileEntry},
    {"torch/_dynamo/convert_frame.py", kDynamo, {"compile_frame"}, FrameRole::kAttemptEntry},
    {"torch/_dynamo/convert_frame.py", kDynamo, {"trace_frame"}},
    {"torch/_dynamo/output_graph.py", kDynamo, {"OutputGraph.compile_subgraph"}},
    {"torch/_dynamo/convert_frame.py",
     kGuards,
     {"DynamoOutput.build_guards", "GraphCaptureOutput.build_guards"}},
    {"torch/_dynamo/guards.py",
     kGuards,
     {"CheckFunctionManager.__init__", "CheckFunctionManager.build_guards",
      "CheckFunctionManager.compile_check_fn"}},
    {"torch/_dynamo/output_graph.py",
     kBackend,
     {"OutputGraph.call_user_compiler", "OutputGraph._call_user_compiler"}},
    {"torch/_dynamo/pgo.py", kCache, {"put_code_state", "get_code_state"}},
    {"torch/_dynamo/package.py", kCache, {"CompilePackage.install"}},

    // AOTAutograd.
    {"torch/_functorch/aot_autograd.py",
     kAotAutograd,
     {"aot_module_simplified", "prepare_aot_module_simplified", "create_aot_state",
      "create_aot_dispatcher_function", "_create_aot_dispatcher_function",
      "aot_export_joint_with_descriptors", "aot_compile_joint_with_descriptors"}},
    {"torch/_functorch/_aot_autograd/graph_compile.py",
     kAotAutograd,
     {"aot_stage1_graph_capture", "aot_stage2_compile", "aot_stage2_inference",
      "aot_stage2_autograd", "aot_stage2_export", "_aot_stage2a_partition",
      "_aot_stage2b_fw_compile", "_aot_stage2b_bw_compile",
      "_aot_stage2b_compile_forward_or_inference", "_aot_stage2b_inference_compile"}},
    {"torch/_functorch/_aot_autograd/jit_compile_runtime_wrappers.py",
     kAotAutograd,
     {"aot_dispatch_base", "aot_dispatch_autograd"}},
    {"torch/_functorch/_aot_autograd/dispatch_and_compile_graph.py",
     kAotAutograd,
     {"aot_dispatch_base_graph", "aot_dispatch_autograd_graph"}},
    {"torch/_functorch/_aot_autograd/graph_capture.py",
     kAotAutograd,
     {"aot_dispatch_base_graph", "aot_dispatch_autograd_graph"}},
    {"torch/_functorch/_aot_autograd/collect_metadata_analysis.py",
     kAotAutograd,
     {"run_functionalized_fw_and_collect_metadata.<locals>.inner"}},
    {"torch/_functorch/partitioners.py",
     kAotAutograd,
     {"min_cut_rematerialization_partition", "default_partition"}},
    {"torch/_functorch/_aot_autograd/autograd_cache.py",
     kCache,
     {"AOTAutogradCache.load", "AOTAutogradCache.try_load", "AOTAutogradCache._lookup",
      "AOTAutogradCache.save"}},

    // Lazy backward: 2.13 and later; then 2.6 to 2.12, where the same frame also runs the result.
    {"torch/_functorch/_aot_autograd/runtime_wrappers.py",
     kAotAutograd,
     {"_AutogradBackwardCompiler.get_or_compile",
      "AOTDispatchAutograd.post_compile.<locals>.CompiledFunction._backward_impl"},
     FrameRole::kBackwardEntry},
    {"torch/_functorch/_aot_autograd/utils.py",
     kRuntime,
     {"call_func_at_runtime_with_args"},
     FrameRole::kRun},

    // Inductor: FX passes, lowering, scheduling, code generation.
    {"torch/_inductor/compile_fx.py",
     kInductor,
     {"compile_fx", "_compile_fx_main", "_maybe_wrap_and_compile_fx_main", "compile_fx_aot",
      "compile_fx.<locals>.fw_compiler_base", "compile_fx.<locals>.bw_compiler",
      "_compile_fx_main.<locals>.fw_compiler_base", "_compile_fx_main.<locals>.bw_compiler",
      "fw_compiler_freezing", "compile_fx_forward", "compile_fx_backward", "compile_fx_inner",
      "_compile_fx_inner", "fx_codegen_and_compile", "_InProcessFxCompile.codegen_and_compile",
      "_recursive_pre_grad_passes", "_recursive_joint_graph_passes",
      "_recursive_post_grad_passes"}},
    {"torch/_inductor/graph.py",
     kInductor,
     {"GraphLowering.__init__", "GraphLowering.run", "GraphLowering.codegen",
      "GraphLowering.codegen_with_cpp_wrapper", "GraphLowering.compile_to_module",
      "GraphLowering._compile_to_module"}},
    {"torch/_inductor/scheduler.py",
     kInductor,
     {"Scheduler.__init__", "Scheduler._init", "Scheduler.codegen", "Scheduler._codegen"}},
    {"torch/_inductor/codegen/wrapper.py",
     kInductor,
     {"PythonWrapperCodegen.generate", "PythonWrapperCodegen._generate"}},
    {"torch/_inductor/standalone_compile.py", kInductor, {"standalone_compile"}},

    // Kernel compilers: g++ and Triton, and getting ready for them.
    {"torch/_inductor/codecache.py",
     kKernelCompile,
     {"AotCodeCompiler.compile", "CppCodeCache.load_async", "CppCodeCache.load",
      "CppPythonBindingsCodeCache.load_pybinding_async",
      "CppPythonBindingsCodeCache.load_pybinding", "_worker_compile_cpp",
      "_load_triton_kernel_from_source"}},
    {"torch/_inductor/cpp_builder.py",
     kKernelCompile,
     {"run_compile_cmd", "_run_compile_cmd", "CppBuilder.build", "get_cpp_compiler"}},
    {"torch/_inductor/cpu_vec_isa.py", kKernelCompile, {"VecISA.check_build"}},
    {"torch/_inductor/async_compile.py",
     kKernelCompile,
     {"AsyncCompile.triton", "AsyncCompile.cpp", "AsyncCompile.cpp_pybinding"}},
    {"torch/_inductor/runtime/compile_tasks.py", kKernelCompile, {"_worker_compile_triton"}},
    {"torch/_inductor/runtime/triton_heuristics.py",
     kKernelCompile,
     {"CachingAutotuner.precompile", "CachingAutotuner._precompile_config"}},
    {"torch/_inductor/compile_worker/subproc_pool.py", kKernelCompile, {"SubprocMain.do_job"}},
    {"triton/compiler/compiler.py", kKernelCompile, {"compile"}},

    // Waiting for them, and for locks between processes.
    {"torch/_inductor/async_compile.py",
     kWait,
     {"AsyncCompile.wait", "AsyncCompile._wait_futures"}},
    {"filelock/_api.py", kWait, {"BaseFileLock.acquire"}},

    // Caches.
    {"torch/_inductor/codecache.py",
     kCache,
     {"FxGraphCache.prepare_key", "FxGraphCache.load_with_key", "FxGraphCache._lookup_graph",
      "FxGraphCache._save_graph", "compiled_fx_graph_hash", "torch_key",
      "PyCodeCache.load_by_key_path"}},

    // Autotuning.
    {"torch/_inductor/runtime/triton_heuristics.py",
     kAutotune,
     {"CachingAutotuner.benchmark_all_configs", "CachingAutotuner.autotune_to_one_config",
      "CachingAutotuner.coordinate_descent_tuning"}},
    {"torch/_inductor/select_algorithm.py",
     kAutotune,
     {"AlgorithmSelectorCache.__call__", "AlgorithmSelectorCache.do_autotuning",
      "AlgorithmSelectorCache.benchmark_choices"}},
    {"torch/_inductor/scheduler.py",
     kAutotune,
     {"Scheduler.benchmark_fused_nodes", "Scheduler.benchmark_codegened_module"}},

    // CUDA graphs: warm-up and recording. Replaying is the program's own run time.
    {"torch/_inductor/cudagraph_trees.py",
     kCudagraphs,
     {"cudagraphify", "CUDAGraphTreeManager.record_function", "CUDAGraphTreeManager.run_eager",
      "CUDAGraphTreeManager.add_function", "CUDAGraphNode.__init__", "CUDAGraphNode._record"}},
    {"torch/_inductor/output_code.py", kCudagraphs, {"cudagraph_post_compile"}},
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
  for (const FrameRule& rule : frame_rules()) index.emplace(key(rule.qualname), &rule);
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
  static constexpr const char* kTexts[] = {
      "runtime",        "unattributed", "dynamo", "guards",   "aot_autograd", "inductor",
      "kernel_compile", "wait",         "cache",  "autotune", "cudagraphs",   "backend"};
  return enum_text<Phase::kBackend>(kTexts, phase, "runtime");
}

const std::vector<FrameRule>& frame_rules() {
  static const std::vector<FrameRule> rules = [] {
    std::vector<FrameRule> all;
    for (const FileRules& of : kRules)
      for (const char* qualname : of.qualnames)
        all.push_back({of.file, qualname, of.role, of.phase});
    return all;
  }();
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
