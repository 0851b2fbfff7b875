// What a wait was about, beyond the system call it was in: torch's compile lock, Inductor's file lock, a data
// loader ... By a table of rules over the frames of its stack. docs/concepts/off-cpu.md lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/resolved.h"

namespace dynprof {

enum class WaitMeaning : std::uint8_t {
  kUnknown,
  kCompileLock,  // torch's lock: one thread of a process compiles at a time
  kGpu,          // until the GPU is done
  kCollective,   // torch.distributed: the other ranks
  kFileLock,     // Inductor's: one process at a time makes a file of its cache
  kIsaProbe,     // whether an instruction set can be used
  kCompiler,     // g++, by Inductor
  kCompilePool,  // kernels that threads or processes of torch's pool compile
  kDataLoader,   // the next batch
  kLoaderIdle,   // a worker of a DataLoader: nothing asked of it
  kImport,       // a module that another thread imports
  kGil,          // the interpreter
  kIdlePool,     // a thread of a pool: it has no work
  kIdleAutograd,
  kIdleOpenMp,
  kIdleWorker,  // torch's compile worker
  kCount,
};
inline constexpr std::size_t kWaitMeanings = static_cast<std::size_t>(WaitMeaning::kCount);
const char* wait_meaning_text(WaitMeaning meaning);  // "compile lock", ...; "" if not known
// Waits of threads that have nothing to do: not what anything waits for.
bool is_idle(WaitMeaning meaning);

enum class RulePlace : std::uint8_t {
  kAnywhere,   // a frame of the stack
  kInnermost,  // the innermost Python frame; for native rules the innermost named native frame
};
struct WaitRule {
  WaitMeaning meaning;
  FrameKind kind;
  RulePlace place;
  // Python: the end of the path, and the function ("" for any). Where there is no qualified name (Python 3.10) its
  // last part counts. Native: the begins of the object's name and of the symbol; "" for any.
  const char* file;
  const char* function;
};
// The first that holds anywhere on a stack decides.
std::span<const WaitRule> wait_rules();

class WaitMeanings {
 public:
  WaitMeanings(const Tables& tables, const ResolvedFrames& frames);
  // A wait for memory, a disk or a new process is no more than that, wherever it is.
  WaitMeaning of(const Wait& wait) const;
  // The rule that decided, an index into wait_rules(); wait_rules().size(): none.
  std::size_t rule_of(StackId stack) const { return rule_[stack]; }

 private:
  std::vector<WaitMeaning> of_;     // by StackId
  std::vector<std::uint8_t> rule_;  // by StackId
};

}  // namespace dynprof
