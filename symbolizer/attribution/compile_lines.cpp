#include "symbolizer/attribution/compile_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

namespace dynprof {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxLines = 4096;  // of one compile
constexpr std::array<const char*, static_cast<std::size_t>(LineUse::kCount)> kUses = {
    "tracing", "graph_end", "retracing", "lowering"};

std::string text(const Json& json, const char* name) {
  auto found = json.find(name);
  if (found == json.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>().substr(0, kMaxText);
}

std::int32_t number(const Json& json, const char* name) {
  auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) return 0;
  auto value = found->get<std::int64_t>();
  return value > 0 && value <= INT32_MAX ? static_cast<std::int32_t>(value) : 0;
}

// The innermost compile open on a thread at a moment; a valid id must be its id.
CompileIndex compile_at(const Attribution& attribution, std::int32_t pid, std::int32_t tid,
                        std::uint64_t time_ns, const TraceId& id) {
  const Tables& tables = attribution.recording().tables();
  const std::vector<Compile>& compiles = attribution.compiles();
  CompileIndex best = kNoCompile;
  for (CompileIndex i = 0; i < compiles.size(); ++i) {
    const Compile& compile = compiles[i];
    if (compile.thread == kNoThread || compile.before_attach) continue;
    if (compile.first_ns > time_ns || compile.last_ns < time_ns) continue;
    const Thread& thread = tables.threads[compile.thread];
    if (thread.pid != pid || thread.tid != tid || (is_valid(id) && compile.id != id)) continue;
    if (best == kNoCompile || compiles[best].first_ns <= compile.first_ns) best = i;
  }
  return best;
}

}  // namespace

const char* line_use_text(LineUse use) { return kUses[static_cast<std::size_t>(use)]; }

std::uint64_t LineTime::sum_ns() const {
  return std::accumulate(ns.begin(), ns.end(), std::uint64_t{0});
}

CompileLines::CompileLines(const Attribution& attribution)
    : lines_(attribution.compiles().size()), waiters_(attribution.compiles().size()) {
  for (const ThreadSpans& thread : attribution.spans().threads()) {
    for (const LineMark& mark : thread.lines) add(attribution, mark);
  }
  for (std::vector<LineTime>& lines : lines_) {
    std::stable_sort(lines.begin(), lines.end(),
                     [](const LineTime& a, const LineTime& b) { return a.sum_ns() > b.sum_ns(); });
  }
  for (std::vector<LockWaiter>& waiters : waiters_) {
    std::stable_sort(waiters.begin(), waiters.end(),
                     [](const LockWaiter& a, const LockWaiter& b) { return a.ns > b.ns; });
  }
}

void CompileLines::add(const Attribution& attribution, const LineMark& mark) {
  if (mark.weight_ns == 0) return;  // the first look
  const Tables& tables = attribution.recording().tables();
  std::string_view document = tables.strings[mark.line];
  Json json = Json::parse(document.begin(), document.end(), nullptr, false);
  if (!json.is_object()) return;
  const Thread& thread = tables.threads[mark.thread];
  std::string kind = text(json, "kind");
  if (kind == "lock") {
    CompileIndex holder =
        compile_at(attribution, thread.pid, number(json, "holder"), mark.time_ns, {});
    if (holder == kNoCompile) return;
    std::vector<LockWaiter>& waiters = waiters_[holder];
    auto known = std::find_if(waiters.begin(), waiters.end(),
                              [&](const LockWaiter& one) { return one.tid == thread.tid; });
    if (known == waiters.end()) known = waiters.insert(waiters.end(), {thread.tid, 0});
    known->ns += mark.weight_ns;
    return;
  }
  auto use = std::find(kUses.begin(), kUses.end(), std::string_view(kind));
  CompileIndex compile = compile_at(attribution, thread.pid, thread.tid, mark.time_ns, mark.id);
  if (use == kUses.end() || compile == kNoCompile || !is_valid(mark.id)) return;
  LineTime line{text(json, "file"), number(json, "line"), text(json, "function")};
  std::vector<LineTime>& lines = lines_[compile];
  auto known = std::find_if(lines.begin(), lines.end(), [&](const LineTime& one) {
    return one.line == line.line && one.file == line.file && one.function == line.function;
  });
  if (known == lines.end()) {
    if (lines.size() == kMaxLines) return;
    known = lines.insert(lines.end(), std::move(line));
  }
  known->ns[static_cast<std::size_t>(use - kUses.begin())] += mark.weight_ns;
}

}  // namespace dynprof
