// The compiles that torch has noted since the last look: what there is to read of a compile right after it
// ended, for a process that may exit at any moment. Some 200 small reads for a compile (twice as many for the
// first), where the whole history takes tens of milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "user/history/compile_history.h"

namespace dynprof {

class NewRows {
 public:
  static constexpr std::size_t kRowsAtMost = 8;  // the newest, at each look

  NewRows();
  NewRows(NewRows&&) noexcept;
  NewRows& operator=(NewRows&&) noexcept;
  ~NewRows();

  // Those added since the last call; by the first call the `ended` newest, as many as compiles ended. Rows of autotuning and CUDA graphs
  // after a compile are left out. Nothing when torch's rows cannot be read. The memory of `objects` has to outlive
  // this: it is always the same process's.
  std::vector<HistoryRow> read(RemoteObjects& objects, const PythonRuntime& runtime,
                               std::size_t ended);

 private:
  struct View;
  std::unique_ptr<View> view_;
  std::uint64_t deque_ = 0;   // torch._dynamo.utils._compilation_metrics
  std::uint64_t newest_ = 0;  // the last row that was read
};

}  // namespace dynprof
