// Dynamo's view of user code: per compile, which functions it traced, how often and for how long, and
// into which others they were inlined. Made from exact edges alone: samples show torch's frames, not
// the user's.
//
// The numbers are those of torch's own profiler (torch 2.13, _dynamo/dynamo_profiler.py):
//   - a call counts when it was traced to its end. One that an exception ended does not, and its
//     time stays with the call around it, which does not count as less for it;
//   - a call is primitive unless the same function (file, first line, name) is being traced around it;
//   - a function's cumulative time is that of its primitive calls; over a caller's edge, of all calls;
//   - the compile's own function is a call without a caller; its time is the phase "bytecode_tracing";
//   - a compile inside another has a profile of its own and takes nothing from the other's.
// What was lost is left out: a call without a known begin or end counts as little as a raised one, and
// what it called has a caller only if that is known.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

struct DynamoCalls {
  std::uint64_t calls = 0;
  std::uint64_t primitive = 0;
  std::uint64_t own_ns = 0;         // without the calls inlined into it (pstats' tottime)
  std::uint64_t cumulative_ns = 0;  // with them
};

struct DynamoCaller {
  std::uint32_t function = 0;  // index of DynamoProfile::functions
  DynamoCalls calls;
};

struct DynamoFunction {
  std::string_view file;  // co_filename, "~" if the function could not be read
  std::int32_t first_line = 0;
  std::string_view name;      // co_name
  std::string_view qualname;  // to show
  std::uint32_t depth = 0;    // the least it was traced at: 0 the compile's own, 1 inlined into it
  std::uint32_t code_bytes = 0;       // len(co_code); 0: not known
  DynamoCalls calls;                  // none: it only called others
  std::vector<DynamoCaller> callers;  // in order of the first call that ended
};

// Own time below one chain of callers, for a flame graph.
struct DynamoStack {
  std::vector<std::uint32_t> functions;  // indices of stack_functions, the outermost first
  std::uint64_t own_ns = 0;
  std::uint64_t calls = 0;
};
// Of one compile; the time of others is missing, and counted.
inline constexpr std::size_t kMaxDynamoStacks = 100'000;

struct DynamoProfile {
  std::vector<DynamoFunction> functions;  // every caller is among them
  DynamoCalls sum;
  std::vector<DynamoStack> stacks;  // in order of the first call that ended
  // Of `stacks`: also those that are in no row of `functions`, as torch's profiler leaves them out.
  std::vector<DynamoFunction> stack_functions;
  std::uint64_t lost_stacks = 0;  // calls in none of them
  std::uint64_t raised = 0;       // calls that an exception ended
  std::uint64_t unfinished = 0;   // calls whose end was not seen
  std::uint64_t inlined = 0;      // calls in `sum` that are not the compile's own function's
  std::uint64_t root_ns = 0;      // of the compile's own function; 0: not seen from begin to end
};

class DynamoProfiles {
 public:
  explicit DynamoProfiles(const Attribution& attribution);

  // Null: no inlined call was seen to its end. That alone is no proof that there was none: nothing may
  // have watched, or the target has torch's own profiler on, where ends are not seen.
  const DynamoProfile* of(CompileIndex compile) const;
  // Whether calls were seen on the compile's thread, in whatever compile.
  bool watched(CompileIndex compile) const { return watched_[compile]; }
  // Ends without a begin, and begins that belong to no known compile.
  std::uint64_t lost() const { return lost_; }

 private:
  std::vector<DynamoProfile> profiles_;  // by CompileIndex
  std::vector<bool> watched_;
  std::uint64_t lost_ = 0;
};

}  // namespace dynprof
