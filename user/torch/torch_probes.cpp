#include "user/torch/torch_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "user/target/clock_function.h"
#include "user/target/function_offsets.h"
#include "user/target/probe_offset.h"

namespace dynprof {
namespace {

constexpr std::string_view kLibrary = "libtorch_python.so";
// In libtorch_python.so of torch 2.9.0, 2.13.0 and 2.15.0. In 2.6.0 the compiler put
// dynamo_eval_custom_code into its caller.
constexpr std::string_view kEvalCustomCode = "dynamo_eval_custom_code";
constexpr std::string_view kRecordFunctionExit = "_pytorch_record_function_exit";
constexpr std::string_view kNodeApply =
    "_ZN5torch8autograd6PyNode5applyEOSt6vectorIN2at6TensorESaIS4_EE";
constexpr std::string_view kNodeOutputs =
    "_ZN5torch8autograd6PyNode16to_variable_listEPK7_objectRKSt6vectorIbSaIbEE";
constexpr std::string_view kNodeRaises = "_ZN12_GLOBAL__N_118throw_python_errorEv";  // to 2.13
constexpr std::string_view kNodeRaisesLater = "_ZN5torch18throw_python_errorEv";     // 2.15
// The second calls the first, and _pytorch_record_function_exit next. 2.13.0 and 2.15.0.
constexpr std::string_view kLookup = "lookup";
constexpr std::string_view kCustomEvalFrame = "dynamo__custom_eval_frame";
constexpr std::array kFunctions = {kEvalCustomCode, kRecordFunctionExit, kNodeApply,
                                   kNodeOutputs,    kNodeRaises,         kNodeRaisesLater,
                                   kLookup,         kCustomEvalFrame};
enum { kEval, kExit, kApply, kOutputs, kRaises, kRaisesLater, kSearch, kCustomEval };

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

bool TorchProbes::attach(KernelSide& kernel, RemoteObjects& objects, const PythonRuntime& runtime) {
  if (attached_) return true;
  if (!std::exchange(clock_tried_, true)) attach_clock(kernel, objects, runtime);
  auto mappings = read_mappings(runtime.pid);
  if (!mappings) return false;
  const bool mapped = std::any_of(mappings->begin(), mappings->end(), [](const Mapping& mapping) {
    return mapping.executable && file_name(mapping.path).starts_with(kLibrary);
  });
  if (!mapped) return false;
  attached_ = true;
  attach_runs(kernel, runtime.pid, *mappings);
  return true;
}

void TorchProbes::attach_clock(KernelSide& kernel, RemoteObjects& objects,
                               const PythonRuntime& runtime) {
  auto attach = [&]() -> Result<Uprobe> {
    ASSIGN_OR_RETURN(const ClockFunction clock, find_clock_function(objects, runtime));
    ASSIGN_OR_RETURN(const UniqueFd file, open_mapped_file(runtime.pid, clock.mapping));
    const std::uint64_t offset = probe_offset(file.get(), clock.offset, ProbeReads::kNothing,
                                              !has_shadow_stack(runtime.pid));
    return kernel.attach_probe(Probe::kClockRead,
                               {.pid = runtime.pid,
                                .path = path_of_open_file(file.get()),
                                .offset = offset,
                                .cookie = kernel.new_clock_slot()},
                               "time.time_ns");
  };
  if (auto probe = attach())
    clock_.push_back(*std::move(probe));
  else
    add_problem(fmt::format("{}: begin and end of compiles and phases come from samples",
                            probe.error().what));
}

void TorchProbes::attach_runs(KernelSide& kernel, pid_t pid, const std::vector<Mapping>& mappings) {
  auto library = std::find_if(mappings.begin(), mappings.end(), [](const Mapping& mapping) {
    return mapping.executable && mapping.is_file() && file_name(mapping.path).starts_with(kLibrary);
  });
  auto fail = [&](const Error& why, std::string_view what) {
    add_problem(fmt::format("{}: {} are not recorded", why.what, what));
  };
  constexpr std::string_view kRegions = "runs of compiled regions";
  constexpr std::string_view kBackwards = "runs of compiled backwards";
  if (library == mappings.end()) return fail(error("it lies in no file"), kRegions);
  auto file = open_mapped_file(pid, *library);
  if (!file) return fail(file.error(), kRegions);
  auto places = find_functions(file->get(), kFunctions);
  if (!places) return fail(error(fmt::format("{} {}", kLibrary, places.error().what)), kRegions);
  const std::string path = path_of_open_file(file->get());
  const std::uint32_t slot = kernel.new_run_slot();
  const bool shadow_stack = has_shadow_stack(pid);
  auto probe = [&](Probe which, std::size_t function) -> Result<void> {
    const auto& place = (*places)[function];
    if (!place) return error(fmt::format("{} has no function {}", kLibrary, kFunctions[function]));
    const bool begins = which == Probe::kRegionEntered || which == Probe::kNodeEntered;
    ASSIGN_OR_RETURN(Uprobe set, kernel.attach_probe(
                                     which,
                                     {.pid = pid,
                                      .path = path,
                                      .offset = probe_offset(file->get(), place->offset,
                                                             ProbeReads::kArguments, !shadow_stack),
                                      .cookie = slot},
                                     kFunctions[function]));
    (begins ? run_begins_ : run_lengths_).push_back(std::move(set));
    return {};
  };
  auto range = [&](std::size_t function) {
    const FunctionPlace& place = *(*places)[function];
    const std::uint64_t begin = library->start + place.offset - library->offset;
    return dp_code_range{begin, begin + place.size};
  };
  if ((*places)[kSearch] && (*places)[kCustomEval] && probe(Probe::kLookupEntered, kSearch))
    functions_.lookup = range(kCustomEval);
  // Ends first: a begin without an end says nothing.
  auto pair = [&](Probe end, std::size_t end_function, Probe begin, std::size_t function,
                  dp_code_range& where, std::string_view what) {
    auto set = probe(end, end_function);
    if (set) set = probe(begin, function);
    if (!set) return fail(set.error(), what);
    where = range(function);
  };
  pair(Probe::kRegionLeft, kExit, Probe::kRegionEntered, kEval, functions_.region, kRegions);
  pair(Probe::kNodeLeft, kOutputs, Probe::kNodeEntered, kApply, functions_.node, kBackwards);
  // Without it the end of a run that raises is not known.
  if (functions_.node.begin)
    (void)probe(Probe::kNodeRaised, (*places)[kRaises] ? kRaises : kRaisesLater);
}

void TorchProbes::detach() {
  std::vector<Uprobe> all = std::exchange(run_begins_, {});
  for (std::vector<Uprobe>* probes : {&run_lengths_, &clock_}) {
    std::move(probes->begin(), probes->end(), std::back_inserter(all));
    probes->clear();
  }
  close_together(std::move(all));
}

void TorchProbes::give_up_clock(pid_t pid) {
  if (clock_.empty()) return;
  close_together(std::exchange(clock_, {}));
  add_problem(fmt::format(
      "process {} calls time.time_ns more than {} times a second outside of torch.compile: the "
      "probe was removed, and begin and end of compiles and phases come from samples from now on",
      pid, DP_CLOCK_CALLS_PER_SECOND));
}

// `runs` innermost first. Only the last may have ended now; the others were left before.
void TorchProbes::write_ends(const std::vector<OpenRuns::Run>& runs, bool last_is_known,
                             SpanEdge edge, RecordingWriter& writer) {
  edge.kind = EdgeKind::kRegionEnd;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].recorded) continue;
    edge.depth = last_is_known && i + 1 == runs.size() ? 0 : kLeftBefore;
    writer.edge(edge);
  }
}

void TorchProbes::on_run(const dp_probe_event& event, std::string_view node_name, ThreadId thread,
                         RecordingWriter& writer) {
  if (events_given_up_) return;
  OpenRuns& open = open_[event.header.tid];
  SpanEdge edge;
  edge.time_ns = event.header.time_ns;
  edge.cpu_ns = event.cpu_ns;
  edge.thread = thread;
  const bool is_node = event.probe == DP_PROBE_NODE_BEGIN;
  switch (event.probe) {
    case DP_PROBE_REGION_BEGIN:
    case DP_PROBE_NODE_BEGIN: {
      const std::string_view name =
          is_node ? node_name : std::string_view(event.name, event.name_size);
      OpenRuns::Run run{event.node, event.sp, !name.empty()};
      write_ends(open.begin(run), false, edge, writer);
      if (!run.recorded) return;
      edge.kind = EdgeKind::kRegionBegin;
      edge.name = writer.string(name);
      writer.edge(edge);
      return;
    }
    case DP_PROBE_NODE_RAISED:
      return write_ends(open.raised(event.sp), true, edge, writer);
    default:
      return write_ends(open.end(event.node, event.sp), true, edge, writer);
  }
}

void TorchProbes::give_up_events(pid_t pid, std::uint64_t per_second) {
  events_given_up_ = true;
  open_.clear();
  add_problem(
      fmt::format("process {} runs compiled regions more than {} times a second: later runs are "
                  "counted, and are not in the trace",
                  pid, per_second));
}

void TorchProbes::give_up_lengths(pid_t pid, std::uint64_t per_second) {
  close_together(std::exchange(run_lengths_, {}));
  if (!events_given_up_) give_up_events(pid, per_second);
}

void TorchProbes::give_up_runs() { close_together(std::exchange(run_begins_, {})); }

void TorchProbes::add_problem(const std::string& problem) {
  if (!problem_.empty()) problem_ += "; ";
  problem_ += problem;
}

std::string TorchProbes::take_problem() { return std::exchange(problem_, {}); }

}  // namespace dynprof
