// Ranges that a program marks in itself (record_function, NVTX, ITT), per thread, and which of them are open at a
// time. Times are exact: from probes, not from samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/recording/model.h"

namespace dynprof {

const char* annotation_kind_text(AnnotationKind kind);

class Annotations {
 public:
  explicit Annotations(const Tables& tables);

  // Of one thread (pid, tid), in order of their begins, outer ones first.
  using Row = std::pair<std::int32_t, std::int32_t>;
  const std::map<Row, std::vector<Annotation>>& threads() const { return threads_; }

  // Calls `visit` for each range of the thread that is open then, innermost first, at most kMostOpen.
  static constexpr std::size_t kMostOpen = 1000;
  void for_each_open(ThreadId thread, std::uint64_t time_ns,
                     const std::function<void(const Annotation&)>& visit) const;
  // Whether one with this name is open. `name` "step" is any range of that name; '*' at its end: whose
  // names begin so.
  bool is_inside(ThreadId thread, std::uint64_t time_ns, std::string_view name) const;

 private:
  const Tables& tables_;
  std::map<Row, std::vector<Annotation>> threads_;
  std::map<Row, std::vector<std::size_t>>
      around_;  // per range: 1 + that of the one around it, 0: none
};

bool annotation_matches(std::string_view annotation, std::string_view name);

// All ranges of one name.
struct AnnotationSums {
  std::string_view name;
  AnnotationKind kind = AnnotationKind::kRecordFunction;
  std::uint64_t count = 0;
  std::uint64_t open = 0;  // of these, whose end was not seen
  std::uint64_t total_ns = 0;
  std::uint64_t longest_ns = 0;
  std::uint64_t samples = 0;     // inside one
  std::uint64_t cpu_ns = 0;      // that these stand for
  std::uint64_t compile_ns = 0;  // of that, in compiles
};

}  // namespace dynprof
