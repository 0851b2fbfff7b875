#include "user/torch/annotation_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "user/target/function_offsets.h"
#include "user/target/probe_offset.h"

namespace dynprof {
namespace {

// Ranges of one thread that are open at once: more come from ends that were lost.
constexpr std::size_t kMaxOpen = 256;
constexpr std::size_t kMaxDomains = 256;

constexpr std::uint16_t kStartedNvtx = DP_ANNOTATION_NVTX | DP_ANNOTATION_STARTED;

struct Function {
  std::string_view name;
  Probe probe;
  std::uint16_t kind;  // as in dp_annotation_event
};
// Ends first: a begin without an end says nothing. In libtorch_cpu.so of torch 2.13.0.
constexpr Function kTorch[] = {
    {"_ZN2at14RecordFunction3endEv", Probe::kRecordEnded, DP_ANNOTATION_RECORD_FUNCTION},
    {"_ZN2at14RecordFunctionC1ENS_11RecordScopeE", Probe::kRecordMade,
     DP_ANNOTATION_RECORD_FUNCTION},
    {"_ZN5torch8autograd8profiler25record_function_enter_newERKNSt7__cxx1112basic_stringIcSt11char_"
     "traitsIcESaIcEEERKSt8optionalIS7_E",
     Probe::kRecordEntered, DP_ANNOTATION_RECORD_FUNCTION},
    {"_ZN5torch8profiler13itt_range_popEv", Probe::kRangePopped, DP_ANNOTATION_ITT},
    {"_ZN5torch8profiler14itt_range_pushEPKc", Probe::kRangePushed, DP_ANNOTATION_ITT},
};
// Of libnvToolsExt.so, which exports them, and of libraries that have NVTX 3 in themselves.
constexpr Function kNvtx[] = {
    {"nvtxRangePop", Probe::kRangePopped, DP_ANNOTATION_NVTX},
    {"nvtxRangePushA", Probe::kRangePushed, DP_ANNOTATION_NVTX},
    {"nvtxRangePushEx", Probe::kAttributesPushed, DP_ANNOTATION_NVTX},
    {"nvtxDomainRangePop", Probe::kDomainPopped, DP_ANNOTATION_NVTX},
    {"nvtxDomainRangePushEx", Probe::kDomainPushed, DP_ANNOTATION_NVTX},
    {"nvtxRangeEnd", Probe::kRangePopped, kStartedNvtx},
    {"nvtxRangeStartA", Probe::kRangePushed, kStartedNvtx},
    {"nvtxRangeStartEx", Probe::kAttributesPushed, kStartedNvtx},
    {"nvtxDomainRangeEnd", Probe::kDomainPopped, kStartedNvtx},
    {"nvtxDomainRangeStartEx", Probe::kDomainPushed, kStartedNvtx},
};

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_library(const Mapping& mapping, std::string_view name) {
  return mapping.executable && mapping.is_file() && file_name(mapping.path).starts_with(name);
}

}  // namespace

void AnnotationProbes::attach(KernelSide& kernel, pid_t pid, bool record_functions) {
  const auto mappings = read_mappings(pid);
  if (!mappings) return;
  auto find = [&](std::string_view name) {
    return std::find_if(mappings->begin(), mappings->end(),
                        [&](const Mapping& mapping) { return is_library(mapping, name); });
  };
  slot_ = kernel.new_run_slot();
  auto attach = [&](std::string_view name, bool torch) {
    if (const auto library = find(name); library != mappings->end())
      attach_library(kernel, pid, *library, torch, record_functions);
  };
  attach("libtorch_cpu.so", true);
  attach("libnvToolsExt.so", false);
  // With CUDA alone it has NVTX, under names that it does not export.
  if (find("libtorch_cuda.so") != mappings->end()) attach("libtorch_python.so", false);
}

void AnnotationProbes::attach_library(KernelSide& kernel, pid_t pid, const Mapping& library,
                                      bool torch, bool record_functions) {
  const std::span<const Function> functions =
      torch ? std::span<const Function>(kTorch) : std::span<const Function>(kNvtx);
  std::vector<std::string_view> names;
  for (const Function& function : functions) names.push_back(function.name);
  auto file = open_mapped_file(pid, library);
  if (!file) return;
  auto places = find_functions(file->get(), names);
  if (!places) return;
  const bool calls = !has_shadow_stack(pid);
  const std::string path = path_of_open_file(file->get());
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (!(*places)[i]) continue;
    const Function& function = functions[i];
    if (function.kind == DP_ANNOTATION_RECORD_FUNCTION && !record_functions) continue;
    auto probe = kernel.attach_probe(
        function.probe,
        {.pid = pid,
         .path = path,
         .offset = probe_offset(file->get(), (*places)[i]->offset, ProbeReads::kArguments, calls),
         .cookie = slot_ | static_cast<std::uint64_t>(function.kind) << 32},
        function.name);
    if (probe) probes_.push_back(*std::move(probe));
  }
}

void AnnotationProbes::detach() { close_together(std::exchange(probes_, {})); }

void AnnotationProbes::write(const Open& range, std::uint64_t end_ns, bool end_seen,
                             ThreadId thread, RecordingWriter& writer) {
  writer.annotation({.begin_ns = range.begin_ns,
                     .end_ns = std::max(range.begin_ns, end_ns),
                     .thread = thread,
                     .kind = static_cast<AnnotationKind>(range.kind),
                     .end_seen = end_seen,
                     .name = range.name});
}

void AnnotationProbes::on(const dp_annotation_event& event, ThreadId thread,
                          RecordingWriter& writer) {
  const std::uint64_t time_ns = event.header.time_ns;
  if (event.edge == DP_ANNOTATION_TOO_OFTEN) {
    finish(time_ns, writer);
    detach();
    if (!any_) return;
    problem_ = fmt::format(
        "the probes on record_function, NVTX and ITT in process {} were hit more than {} times a "
        "second and are removed: its ranges are not recorded any more",
        event.header.pid, DP_ANNOTATION_HITS_PER_SECOND);
    return;
  }
  any_ = true;
  if (event.kind & DP_ANNOTATION_STARTED) return on_started(event, thread, writer);
  OpenOnThread& on_thread = open_[event.header.tid];
  on_thread.thread = thread;
  std::vector<Open>& ranges = on_thread.ranges;
  if (event.edge == DP_ANNOTATION_BEGIN) {
    if (ranges.size() == kMaxOpen) ranges.erase(ranges.begin());
    ranges.push_back({event.id, time_ns,
                      writer.string(std::string_view(event.name, event.name_size)), event.kind});
    return;
  }
  const auto found = std::find_if(ranges.rbegin(), ranges.rend(), [&](const Open& range) {
    return range.kind == event.kind && range.id == event.id;
  });
  if (found == ranges.rend()) return;  // it began before the probes were there
  write(*found, time_ns, true, thread, writer);
  const auto at = ranges.erase(std::prev(found.base()));
  if (event.kind != DP_ANNOTATION_RECORD_FUNCTION) return;
  // The ends of those inside it were lost, or come on another thread.
  ranges.erase(std::remove_if(at, ranges.end(),
                              [&](const Open& range) {
                                if (range.kind != event.kind) return false;
                                write(range, time_ns, false, thread, writer);
                                return true;
                              }),
               ranges.end());
}

void AnnotationProbes::write(const StartedRanges::Ended& ended, std::uint16_t kind,
                             std::uint64_t end_ns, RecordingWriter& writer) {
  for (const StartedRanges::Range& range : ended.ranges)
    write({.begin_ns = range.begin_ns, .name = range.name, .kind = kind}, end_ns, ended.end_seen,
          range.thread, writer);
}

void AnnotationProbes::on_started(const dp_annotation_event& event, ThreadId thread,
                                  RecordingWriter& writer) {
  const auto kind = static_cast<std::uint16_t>(event.kind & ~DP_ANNOTATION_STARTED);
  if (!started_.contains({kind, event.id}) && started_.size() >= kMaxDomains) return;
  StartedRanges& ranges = started_[{kind, event.id}];
  if (event.edge != DP_ANNOTATION_BEGIN)
    return write(ranges.end(), kind, event.header.time_ns, writer);
  ranges.start({.begin_ns = event.header.time_ns,
                .thread = thread,
                .name = writer.string(std::string_view(event.name, event.name_size))});
}

void AnnotationProbes::finish(std::uint64_t time_ns, RecordingWriter& writer) {
  for (auto& [of, ranges] : started_) write(ranges.finish(), of.first, time_ns, writer);
  started_.clear();
  for (const auto& [tid, on_thread] : open_)
    for (const Open& range : on_thread.ranges)
      write(range, time_ns, false, on_thread.thread, writer);
  open_.clear();
}

std::string AnnotationProbes::take_problem() { return std::exchange(problem_, {}); }

}  // namespace dynprof
