// One thread's open phases, edge by edge.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolizer/attribution/spans.h"

namespace dynprof {

class PhaseStack {
 public:
  PhaseStack(const Tables& tables, const std::vector<TorchReading>& torch, EdgeLosses& losses)
      : tables_(tables), torch_(torch), losses_(losses) {}

  // Edges of one thread in the order they were taken; a time that goes back counts as none passed.
  void phase_begin(const SpanEdge& edge);
  void phase_end(const SpanEdge& edge);
  void watch_begin(const SpanEdge& edge);
  void watch_end(const SpanEdge& edge);
  // What is open stays without an end.
  std::vector<PhaseSpan> finish();

 private:
  std::uint64_t advance(const SpanEdge& edge);
  PhaseSpan& open_at(std::size_t depth) { return spans_[open_[depth - 1]]; }
  void push(StringId name, std::uint64_t begin_ns, bool known, const SpanEdge& edge,
            const TraceId& id);
  bool is_new_compile(const PhaseSpan& span, const TraceId& id) const;
  void close(std::uint64_t end_ns, bool known, bool open_at_end);
  void go_on(const SpanEdge& edge);
  void lose_ends_above(std::size_t depth);
  void learn(const SpanEdge& edge);
  void name_span(PhaseSpan& span, StringId name);

  const Tables& tables_;
  const std::vector<TorchReading>& torch_;
  EdgeLosses& losses_;
  std::vector<PhaseSpan> spans_;
  std::vector<SpanIndex> open_;       // outermost first
  std::vector<SpanIndex> unwatched_;  // what was open when the last watch ended
  std::uint64_t last_ns_ = 0;         // of the edge before
  std::uint64_t now_ns_ = 0;
};

}  // namespace dynprof
