#include "user/collector/torch_probes.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "user/collector/torch_watch.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

struct Rule {
  Probe probe;
  std::string_view library;  // how its file name begins
  const char* symbol;
  const char* lost;  // what is not known without it
};
// Checked with torch 2.13.0; the symbols are in 2.6.0, 2.9.0 and 2.14.1 too.
constexpr std::array kRules = {
    Rule{Probe::kCounterNamed, "libc10.so",
         "_ZN3c107monitor17WaitCounterHandleC1ESt17basic_string_viewIcSt11char_traitsIcEE",
         "begin and end of whole compiles"},
    Rule{Probe::kCounterMade, "libc10.so",
         "_ZN3c107monitor17WaitCounterHandleC1ESt17basic_string_viewIcSt11char_traitsIcEE",
         "begin and end of whole compiles"},
    Rule{Probe::kWaitStarted, "libc10.so", "_ZN3c107monitor17WaitCounterHandle5startEv",
         "begin and end of whole compiles"},
    Rule{Probe::kWaitStopped, "libc10.so",
         "_ZN3c107monitor17WaitCounterHandle4stopERKNS_11SmallVectorIlLj6EEE",
         "begin and end of whole compiles"},
    Rule{Probe::kFrameSeen, "libtorch_python.so", "THPPyInterpreterFrame_New",
         "the first moments of a thread's first compile"},
    Rule{Probe::kRegionLeft, "libtorch_python.so", "dynamo_eval_custom_code",
         "runs of compiled regions"},
    Rule{Probe::kRegionEntered, "libtorch_python.so", "dynamo_eval_custom_code",
         "runs of compiled regions"},
    Rule{Probe::kNodeLeft, "libtorch_python.so",
         "_ZN5torch8autograd6PyNode5applyEOSt6vectorIN2at6TensorESaIS4_EE",
         "runs of compiled backwards"},
    Rule{Probe::kNodeEntered, "libtorch_python.so",
         "_ZN5torch8autograd6PyNode5applyEOSt6vectorIN2at6TensorESaIS4_EE",
         "runs of compiled backwards"},
};

constexpr std::string_view kCounterPrefix = "pytorch.wait_counter.";
constexpr std::size_t kMaxCounters = 4096;
constexpr std::size_t kMaxNodes = 64;  // one inside another on a thread
// Two probes a run cost 10 to 30 us in a virtual machine (measured by how many runs a second a loop of
// them makes): this many are below 0.5 % of a core.
constexpr std::uint32_t kMaxRunsPerSecond = 200;
constexpr std::uint64_t kSecondNs = 1'000'000'000;

bool is_run(Probe probe) {
  return probe == Probe::kRegionEntered || probe == Probe::kRegionLeft ||
         probe == Probe::kNodeEntered || probe == Probe::kNodeLeft;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The very file that is mapped, whatever its path leads to now.
std::string mapped_path(pid_t pid, const Mapping& mapping) {
  return fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.start, mapping.end);
}

}  // namespace

bool TorchProbes::attach(pid_t pid, KernelSide& kernel) {
  if (attached_) return true;
  auto mappings = read_mappings(pid);
  if (!mappings) return false;
  auto path_of = [&](std::string_view library) -> std::string {
    for (const Mapping& mapping : *mappings)
      if (mapping.executable && mapping.is_file() && file_name(mapping.path).starts_with(library))
        return mapped_path(pid, mapping);
    return {};
  };
  const std::string c10 = path_of("libc10.so");
  const std::string python = path_of("libtorch_python.so");
  if (python.empty()) return false;
  attached_ = true;
  std::string_view told;
  for (const Rule& rule : kRules) {
    const std::string& path = rule.library == "libc10.so" ? c10 : python;
    auto link = path.empty() ? Result<Link>(error(fmt::format("{} is not mapped", rule.library)))
                             : kernel.attach_probe(rule.probe, pid, path, rule.symbol);
    if (link) {
      sees_frames_ |= rule.probe == Probe::kFrameSeen;
      sees_waits_ |= rule.probe == Probe::kWaitStarted;
      (is_run(rule.probe) ? region_links_ : links_).push_back(std::move(*link));
    } else if (std::exchange(told, rule.lost) != rule.lost) {
      if (!problem_.empty()) problem_ += "; ";
      problem_ += fmt::format("{}: {} come from other sources", link.error().what, rule.lost);
    }
  }
  return true;
}

bool TorchProbes::edge(const dp_probe_event& event, std::string_view node, RecordingWriter& writer,
                       SpanEdge& edge) {
  std::string_view name(event.name, event.name_size);
  edge.time_ns = event.header.time_ns;
  edge.cpu_ns = event.cpu_ns;
  switch (event.probe) {
    case DP_PROBE_COUNTER_NAME:
      if (name.starts_with(kCounterPrefix)) name.remove_prefix(kCounterPrefix.size());
      if (counters_.size() < kMaxCounters || counters_.contains(event.object))
        counters_[event.object] = {writer.string(name), name.ends_with("_compile")};
      return false;
    case DP_PROBE_WAIT_BEGIN:
    case DP_PROBE_WAIT_END: {
      auto at = counters_.find(event.object);
      if (at == counters_.end()) return false;
      edge.kind = event.probe == DP_PROBE_WAIT_BEGIN ? EdgeKind::kWaitBegin : EdgeKind::kWaitEnd;
      edge.name = at->second.name;
      if (event.torch.status != 0) {
        Context context;
        context.torch = recorded_state(event.torch);
        edge.context = writer.context(context);
      }
      return true;
    }
    case DP_PROBE_REGION_BEGIN:
      count_region(event.header.time_ns);
      edge.kind = EdgeKind::kRegionBegin;
      edge.name = writer.string(name);
      return run_begins(regions_[event.header.tid], true);
    case DP_PROBE_REGION_END:
      edge.kind = EdgeKind::kRegionEnd;
      return run_ends(regions_[event.header.tid]);
    case DP_PROBE_NODE_BEGIN:
      count_region(event.header.time_ns);
      edge.kind = EdgeKind::kRegionBegin;
      edge.name = writer.string(node);
      return run_begins(nodes_[event.header.tid], !node.empty());
    case DP_PROBE_NODE_END:
      edge.kind = EdgeKind::kRegionEnd;
      return run_ends(nodes_[event.header.tid]);
    default:
      return false;
  }
}

// The probes go one after the other: once they are given up, a run may have one edge without the other.
bool TorchProbes::run_begins(std::vector<bool>& open, bool recorded) const {
  if (open.size() == kMaxNodes) open.clear();
  open.push_back(recorded && !runs_given_up_);
  return open.back();
}

bool TorchProbes::run_ends(std::vector<bool>& open) {
  const bool recorded = !open.empty() && open.back();
  if (!open.empty()) open.pop_back();
  return recorded;
}

bool TorchProbes::begins_compile(const dp_probe_event& event) const {
  if (event.probe != DP_PROBE_WAIT_BEGIN) return false;
  auto at = counters_.find(event.object);
  return at != counters_.end() && at->second.compile;
}

void TorchProbes::count_region(std::uint64_t now_ns) {
  if (now_ns / kSecondNs != std::exchange(second_, now_ns / kSecondNs)) runs_ = 0;
  if (++runs_ < kMaxRunsPerSecond || region_links_.empty()) return;
  runs_given_up_ = true;
  // The kernel takes a tenth of a second or more for each: events must not wait for that.
  closing_ = std::async(std::launch::async, [links = std::move(region_links_)]() mutable {
    while (!links.empty()) links.pop_back();  // those of begins first
  });
  region_links_.clear();
  problem_ = fmt::format(
      "compiled regions run more than {} times a second: to cost the target nothing, their runs "
      "are "
      "recorded up to here only",
      kMaxRunsPerSecond);
}

std::string TorchProbes::take_problem() { return std::exchange(problem_, {}); }

}  // namespace dynprof
