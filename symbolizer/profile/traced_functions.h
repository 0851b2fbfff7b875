// What an exact event of Dynamo's tracing is about: which user function, which compile.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "symbolizer/attribution/spans.h"
#include "symbolizer/profile/dynamo_profile.h"

namespace dynprof {

using FunctionNumber = std::uint32_t;

// Functions by what pstats keys by, whatever code object they came from: one that is made anew at each
// call has a new code object each time.
class TracedFunctions {
 public:
  explicit TracedFunctions(const Attribution& attribution);

  FunctionNumber of_code(CodeId id);
  // The compile's own function, which all its attempts share.
  FunctionNumber of_compile(CompileIndex compile);
  const DynamoFunction& operator[](FunctionNumber function) const { return functions_[function]; }

 private:
  DynamoFunction read(CodeId id) const;
  std::uint32_t code_bytes(const DynamoFunction& function);
  FunctionNumber number(const DynamoFunction& function);

  using Key = std::tuple<std::string_view, std::int32_t, std::string_view>;
  const Attribution& attribution_;
  std::vector<DynamoFunction> functions_;
  std::map<Key, FunctionNumber> numbers_;
  std::map<Key, CodeId> codes_;  // filled when first asked for
  std::unordered_map<CodeId, FunctionNumber> of_codes_;
  std::unordered_map<std::uint32_t, CompileIndex> attempts_;  // by episode: one that knows it
};

// Which compile something on a thread belongs to. `row` is Spans::row_of(thread).
class TracedCompiles {
 public:
  explicit TracedCompiles(const Attribution& attribution);

  // The attempt that a phase is part of; kNoCompile: none that is known.
  CompileIndex of(std::size_t row, const PhaseSpan& span) const;
  // The innermost compile open on the thread, and where no phases are known the one whose id the edge
  // has. It is asked last because its context is what torch said at the phase before: of a compile
  // inside this one that has ended since.
  CompileIndex of(std::size_t row, std::uint64_t time_ns, const SpanEdge& edge) const;

 private:
  const Attribution& attribution_;
  std::vector<CompileIndex> of_exact_;
  std::map<std::pair<std::size_t, SpanIndex>, std::vector<std::uint32_t>> attempts_;  // of a root
  std::map<std::pair<std::size_t, TraceId>, std::vector<CompileIndex>> by_id_;
};

}  // namespace dynprof
