#include "symbolizer/profile/traced_functions.h"

#include <algorithm>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/python/line_table.h"

namespace dynprof {
namespace {

constexpr std::string_view kNoFile = "~";  // as cProfile writes what has none

bool is_known(const CompiledFunction& function) {
  return function.unreadable == Unreadable::kNo && !function.name.empty();
}

}  // namespace

TracedFunctions::TracedFunctions(const Attribution& attribution) : attribution_(attribution) {
  const std::vector<Compile>& compiles = attribution.compiles();
  for (CompileIndex i = 0; i < compiles.size(); ++i) {
    if (is_known(attribution.function(i))) attempts_.try_emplace(compiles[i].episode, i);
  }
}

FunctionNumber TracedFunctions::of_code(CodeId id) {
  auto [known, added] = of_codes_.try_emplace(id);
  if (added) known->second = number(read(id));
  return known->second;
}

FunctionNumber TracedFunctions::of_compile(CompileIndex compile) {
  CompiledFunction known = attribution_.function(compile);
  if (auto other = attempts_.find(attribution_.compiles()[compile].episode);
      !is_known(known) && other != attempts_.end()) {
    known = attribution_.function(other->second);
  }
  DynamoFunction function;
  if (!is_known(known)) {
    function.file = kNoFile;
    function.name = known.qualname.empty() ? "<function not known>" : known.qualname;
    function.qualname = function.name;
  } else {
    function.file = known.file;
    function.first_line = known.line;
    function.name = known.name;
    function.qualname = known.qualname;
    function.code_bytes = code_bytes(function);
  }
  return number(function);
}

DynamoFunction TracedFunctions::read(CodeId id) const {
  const Tables& tables = attribution_.recording().tables();
  const Code& code = tables.codes[id];
  DynamoFunction function;
  if (code.unreadable != Unreadable::kNo) {
    function.file = kNoFile;
    function.name = function.qualname = unreadable_text(code.unreadable);
    return function;
  }
  function.file = tables.strings[code.filename];
  function.first_line = code.first_line;
  function.name = tables.strings[code.name];
  function.qualname = tables.strings[code.qualname];
  const auto units = decode_line_table(code.python, tables.blobs[code.line_table], code.first_line);
  function.code_bytes = units.empty() ? 0 : 2 * units.back().end;
  return function;
}

// The code of a compile's own function, among all that samples and events named.
std::uint32_t TracedFunctions::code_bytes(const DynamoFunction& function) {
  const Tables& tables = attribution_.recording().tables();
  if (codes_.empty()) {
    for (CodeId id = 0; id < tables.codes.size(); ++id) {
      const Code& code = tables.codes[id];
      if (code.unreadable != Unreadable::kNo) continue;
      codes_.try_emplace(
          {tables.strings[code.filename], code.first_line, tables.strings[code.name]}, id);
    }
  }
  auto found = codes_.find({function.file, function.first_line, function.name});
  return found == codes_.end() ? 0 : read(found->second).code_bytes;
}

FunctionNumber TracedFunctions::number(const DynamoFunction& function) {
  auto [known, added] = numbers_.try_emplace({function.file, function.first_line, function.name},
                                             static_cast<FunctionNumber>(functions_.size()));
  if (added) functions_.push_back(function);
  return known->second;
}

TracedCompiles::TracedCompiles(const Attribution& attribution)
    : attribution_(attribution), of_exact_(attribution.exact().all().size(), kNoCompile) {
  const std::vector<ExactCompile>& exact = attribution.exact().all();
  for (std::uint32_t i = 0; i < exact.size(); ++i) {
    attempts_[{exact[i].row, exact[i].root}].push_back(i);
  }
  const std::vector<Compile>& compiles = attribution.compiles();
  const std::size_t threads = attribution.recording().tables().threads.size();
  for (CompileIndex i = 0; i < compiles.size(); ++i) {
    if (compiles[i].timing < of_exact_.size()) {
      of_exact_[compiles[i].timing] = i;
    } else if (compiles[i].thread < threads && compiles[i].first_ns != 0) {
      by_id_[{attribution.spans().row_of(compiles[i].thread), compiles[i].id}].push_back(i);
    }
  }
}

CompileIndex TracedCompiles::of(std::size_t row, const PhaseSpan& span) const {
  auto whole = attempts_.find({row, span.root});
  if (whole == attempts_.end()) return kNoCompile;
  const std::vector<ExactCompile>& all = attribution_.exact().all();
  auto after =
      std::find_if(whole->second.begin() + 1, whole->second.end(),
                   [&](std::uint32_t attempt) { return all[attempt].begin_ns > span.begin_ns; });
  return of_exact_[*(after - 1)];
}

CompileIndex TracedCompiles::of(std::size_t row, std::uint64_t time_ns,
                                const SpanEdge& edge) const {
  const ExactMoment moment = attribution_.exact().at(row, time_ns);
  if (moment.compile != kNoIndex) return of_exact_[moment.compile];
  const Recording& recording = attribution_.recording();
  const TorchState& torch = recording.tables().contexts[edge.context].torch;
  if (torch.status != TorchStatus::kRead) return kNoCompile;
  auto same = by_id_.find({row, TraceId{torch.autograd_id, torch.frame_id, torch.compile_id}});
  if (same == by_id_.end()) return kNoCompile;
  // Samples show a compile up to one period after its begin, and not for the last one.
  const std::uint64_t slack = recording.meta().period_ns;
  auto open = [&](CompileIndex index) {
    const Compile& compile = attribution_.compiles()[index];
    return compile.attempt == torch.attempt && compile.first_ns <= time_ns + slack &&
           time_ns <= compile.last_ns + slack;
  };
  auto found = std::find_if(same->second.rbegin(), same->second.rend(), open);
  return found == same->second.rend() ? kNoCompile : *found;
}

}  // namespace dynprof
