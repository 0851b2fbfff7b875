#include "symbolizer/attribution/wait_meaning.h"

#include <algorithm>
#include <array>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr FrameKind kPython = FrameKind::kPython, kNative = FrameKind::kNative;
constexpr RulePlace kAnywhere = RulePlace::kAnywhere, kInnermost = RulePlace::kInnermost;

// Functions as torch 2.6 to 2.14 has them. A rule for a lock is about the function that takes it: while it holds
// the lock, other functions are innermost.
constexpr std::array kRules = {
    WaitRule{WaitMeaning::kCompileLock, kPython, kInnermost, "torch/_dynamo/convert_frame.py",
             "CatchErrorsWrapper.__call__"},
    WaitRule{WaitMeaning::kCompileLock, kPython, kInnermost, "torch/_inductor/compile_fx.py",
             "compile_fx_backward"},
    WaitRule{WaitMeaning::kCompileLock, kPython, kInnermost, "torch/_inductor/compile_fx.py",
             "compile_fx.<locals>.bw_compiler"},
    WaitRule{WaitMeaning::kCompileLock, kPython, kInnermost, "torch/_dynamo/__init__.py", "reset"},
    WaitRule{WaitMeaning::kGpu, kNative, kAnywhere, "", "cudaStreamSynchronize"},
    WaitRule{WaitMeaning::kGpu, kNative, kAnywhere, "", "cudaDeviceSynchronize"},
    WaitRule{WaitMeaning::kGpu, kNative, kAnywhere, "", "cudaEventSynchronize"},
    WaitRule{WaitMeaning::kGpu, kNative, kAnywhere, "", "cuStreamSynchronize"},
    WaitRule{WaitMeaning::kGpu, kNative, kAnywhere, "", "cuCtxSynchronize"},
    WaitRule{WaitMeaning::kGpu, kNative, kAnywhere, "", "cuEventSynchronize"},
    WaitRule{WaitMeaning::kGpu, kPython, kAnywhere, "torch/cuda/__init__.py", "synchronize"},
    WaitRule{WaitMeaning::kGpu, kPython, kAnywhere, "torch/cuda/streams.py", ""},
    WaitRule{WaitMeaning::kCollective, kPython, kAnywhere, "torch/distributed/distributed_c10d.py",
             ""},
    WaitRule{WaitMeaning::kFileLock, kPython, kInnermost, "filelock/_api.py", ""},
    WaitRule{WaitMeaning::kFileLock, kPython, kInnermost, "filelock/_unix.py", ""},
    WaitRule{WaitMeaning::kIsaProbe, kPython, kAnywhere, "torch/_inductor/cpu_vec_isa.py", ""},
    WaitRule{WaitMeaning::kCompiler, kPython, kAnywhere, "torch/_inductor/cpp_builder.py", ""},
    WaitRule{WaitMeaning::kCompilePool, kPython, kAnywhere, "torch/_inductor/async_compile.py",
             "AsyncCompile.wait"},
    WaitRule{WaitMeaning::kCompilePool, kPython, kAnywhere, "torch/_inductor/codecache.py",
             "LambdaFuture.result"},
    WaitRule{WaitMeaning::kCompilePool, kPython, kAnywhere, "torch/_inductor/codecache.py",
             "StaticAutotunerFuture.result"},
    WaitRule{WaitMeaning::kCompilePool, kPython, kAnywhere, "torch/_inductor/codecache.py",
             "TritonFuture.result"},
    WaitRule{WaitMeaning::kLoaderIdle, kPython, kAnywhere, "torch/utils/data/_utils/worker.py",
             "_worker_loop"},
    WaitRule{WaitMeaning::kLoaderIdle, kPython, kAnywhere, "torch/utils/data/_utils/pin_memory.py",
             "_pin_memory_loop"},
    WaitRule{WaitMeaning::kDataLoader, kPython, kAnywhere, "torch/utils/data/dataloader.py", ""},
    WaitRule{WaitMeaning::kImport, kPython, kInnermost, "<frozen importlib._bootstrap>",
             "_ModuleLock.acquire"},
    WaitRule{WaitMeaning::kGil, kNative, kAnywhere, "", "take_gil"},
    WaitRule{WaitMeaning::kIdlePool, kPython, kInnermost, "concurrent/futures/thread.py",
             "_worker"},
    WaitRule{WaitMeaning::kIdlePool, kPython, kInnermost, "multiprocessing/pool.py", "worker"},
    WaitRule{WaitMeaning::kIdleAutograd, kNative, kAnywhere, "libtorch_cpu",
             "torch::autograd::ReadyQueue::pop"},
    WaitRule{WaitMeaning::kIdleOpenMp, kNative, kInnermost, "libgomp", ""},
    WaitRule{WaitMeaning::kIdleOpenMp, kNative, kInnermost, "libiomp5", ""},
    WaitRule{WaitMeaning::kIdleWorker, kPython, kAnywhere,
             "torch/_inductor/compile_worker/__main__.py", ""},
    WaitRule{WaitMeaning::kIdleWorker, kPython, kAnywhere,
             "torch/_inductor/compile_worker/subproc_pool.py", "SubprocPool._read_thread"},
};
constexpr auto kNone = static_cast<std::uint8_t>(kRules.size());

// The last part of a path must be the whole of a component: "my_async_compile.py" is another file.
bool ends_with_path(std::string_view file, std::string_view end) {
  return file.ends_with(end) &&
         (file.size() == end.size() || file[file.size() - end.size() - 1] == '/');
}

bool is_function(std::string_view function, std::string_view wanted) {
  return function == wanted || (function.find('.') == std::string_view::npos &&
                                function == wanted.substr(wanted.rfind('.') + 1));
}

bool holds(const WaitRule& rule, const ResolvedFrame& frame) {
  if (rule.kind != frame.kind) return false;
  const std::string_view file = rule.file, function = rule.function;
  // A stripped library has no names.
  const bool nameless = rule.kind == kNative && function.empty();
  if (frame.unreadable != Unreadable::kNo && !nameless) return false;
  if (rule.kind == kPython)
    return ends_with_path(frame.file, file) &&
           (function.empty() || is_function(frame.function, function));
  return base_name(frame.file).starts_with(file) && frame.function.starts_with(function);
}

// Of one frame: the first rule that holds for it anywhere, and as the innermost.
struct Matches {
  std::uint8_t anywhere = kNone, innermost = kNone;
};

Matches matches_of(const ResolvedFrame& frame) {
  Matches found;
  for (std::uint8_t i = 0; i < kNone; ++i) {
    if (!holds(kRules[i], frame)) continue;
    std::uint8_t& best = kRules[i].place == kAnywhere ? found.anywhere : found.innermost;
    best = std::min(best, i);
  }
  return found;
}

}  // namespace

const char* wait_meaning_text(WaitMeaning meaning) {
  static constexpr std::array<const char*, kWaitMeanings> kTexts = {
      "",          "compile lock",  "GPU",         "collective",  "file lock",   "ISA probe",
      "compiler",  "compile pool",  "DataLoader",  "loader idle", "import lock", "GIL",
      "pool idle", "autograd idle", "OpenMP idle", "worker idle"};
  return kTexts[static_cast<std::size_t>(meaning)];
}

bool is_idle(WaitMeaning meaning) {
  return meaning == WaitMeaning::kLoaderIdle || meaning == WaitMeaning::kIdlePool ||
         meaning == WaitMeaning::kIdleAutograd || meaning == WaitMeaning::kIdleOpenMp ||
         meaning == WaitMeaning::kIdleWorker;
}

std::span<const WaitRule> wait_rules() { return kRules; }

WaitMeaning WaitMeanings::of(const Wait& wait) const {
  const WaitMeaning meaning = of_[wait.stack];
  switch (wait.kind) {
    case WaitKind::kNone:
    case WaitKind::kPreempted:
    case WaitKind::kDisk:
    case WaitKind::kPageFault:
    case WaitKind::kMemory:
    case WaitKind::kProcess:
      return WaitMeaning::kUnknown;
    default:
      return meaning == WaitMeaning::kCompileLock && wait.kind != WaitKind::kFutex
                 ? WaitMeaning::kUnknown
                 : meaning;
  }
}

WaitMeanings::WaitMeanings(const Tables& tables, const ResolvedFrames& frames)
    : of_(tables.stacks.size(), WaitMeaning::kUnknown), rule_(tables.stacks.size(), kNone) {
  std::vector<Matches> of_frame(frames.size());
  for (FrameId id = 0; id < frames.size(); ++id) of_frame[id] = matches_of(frames[id]);
  // By stack: what holds anywhere on it; what holds for its innermost Python frame, and for its innermost native
  // one that lies in a library, not counting the C library's (a wait is always in a function of that).
  std::vector<std::uint8_t> anywhere(tables.stacks.size(), kNone);
  std::vector<std::uint8_t> python(tables.stacks.size(), kNone), native(python);
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    const StackId caller = node.caller < id ? node.caller : 0;
    const ResolvedFrame& frame = frames[node.frame];
    const Matches& own = of_frame[node.frame];
    anywhere[id] = std::min(own.anywhere, anywhere[caller]);
    python[id] = frame.kind == kPython ? own.innermost : python[caller];
    const std::string_view object = base_name(frame.file);
    const bool in_library = frame.kind == kNative && !object.starts_with("libc.so") &&
                            !object.starts_with("libc-") && !object.starts_with("libpthread");
    native[id] = in_library ? own.innermost : native[caller];
    rule_[id] = std::min({anywhere[id], python[id], native[id]});
    of_[id] = rule_[id] == kNone ? WaitMeaning::kUnknown : kRules[rule_[id]].meaning;
  }
}

}  // namespace dynprof
