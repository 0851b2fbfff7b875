// How long each thread had run on a CPU by some moment, where its switches were recorded: the kernel
// side's own sum per thread, which each wait carries. Between two of them it is taken to be even.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "symbolizer/attribution/spans.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

class ThreadClocks {
 public:
  ThreadClocks(const Tables& tables, const Spans& spans);

  bool empty() const { return rows_.empty(); }
  // In ns since some moment of the thread's own, by its row in Spans; nothing: it was not looked at
  // then. Never less at a later moment.
  std::optional<double> cpu_at(std::size_t row, std::uint64_t time_ns) const;

 private:
  struct Mark {
    std::uint64_t time_ns;
    std::uint64_t cpu_ns;
  };
  std::vector<std::vector<Mark>> rows_;  // by time
};

}  // namespace dynprof
