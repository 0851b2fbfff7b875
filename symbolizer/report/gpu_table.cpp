// The report's part about GPU work; nothing where a recording has none.
#include <fmt/format.h>

#include <cmath>

#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/report/gpu_verdict.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"
#include "symbolizer/report/user_frames.h"
#include "symbolizer/symbols/gpu_kernel_name.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxKernels = 20;
constexpr std::size_t kMaxRegions = 20;
constexpr std::size_t kMaxRegionNotes = 10;

std::string duration(std::uint64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns < 10'000'000) return fmt::format("{:.1f} us", value / 1e3);
  if (ns < 10'000'000'000) return fmt::format("{:.1f} ms", value / 1e6);
  return fmt::format("{:.2f} s", value / 1e9);
}

std::string trace_id(const TraceId& id, bool backward) {
  if (!is_valid(id)) return "-";
  return (backward ? "bw " : "") + id.text();
}

std::string data_size(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < std::uint64_t{1} << 20) return fmt::format("{:.1f} KiB", value / 0x1p10);
  if (bytes < std::uint64_t{1} << 30) return fmt::format("{:.1f} MiB", value / 0x1p20);
  return fmt::format("{:.1f} GiB", value / 0x1p30);
}

std::string memory_text(const GpuMemoryWork& memory, std::string_view one, std::string_view many) {
  return fmt::format("{} {} ({}, {})", grouped(memory.count), memory.count == 1 ? one : many,
                     data_size(memory.bytes), duration(memory.ns));
}

// Without the library calls have no end, and nothing is known of what they started.
std::string known(std::uint64_t ns, std::uint64_t basis) { return basis > 0 ? duration(ns) : "-"; }

class GpuTable {
 public:
  GpuTable(std::string& out, const Selection& selection, const GpuWork& gpu)
      : out_(out), selection_(selection), gpu_(gpu), summary_(summarize(gpu)) {}

  void append() {
    out_ += "#\n";
    const bool timed = summary_.calls > 0 || summary_.works > 0;
    if (timed)
      append_comment(out_, fmt::format("GPU: {} CUDA calls, {} kernels and copies, {} of work",
                                       grouped(summary_.calls), grouped(summary_.works),
                                       duration(summary_.work_ns)));
    if (summary_.bare_calls > 0)
      append_comment(out_,
                     fmt::format("{}{} CUDA calls were seen without libdynprof_cupti.so: how long "
                                 "what they started ran is not known (docs/concepts/gpu.md)",
                                 timed ? "" : "GPU: ", grouped(summary_.bare_calls)));
    if (summary_.calls_without_stack > 0)
      append_comment(out_,
                     fmt::format("{} of the calls have their stack: with --sampled-launch-stacks "
                                 "most have none; else the others' are lost",
                                 grouped(summary_.calls - summary_.calls_without_stack)));
    if (gpu_.orphans() > 0)
      append_comment(
          out_, fmt::format("{} of the kernels and copies were launched before the recording began",
                            grouped(gpu_.orphans())));
    if (summary_.launches > 0)
      append_comment(out_, fmt::format("Launch overhead: {} in {} calls, {} each; {} CUDA graphs",
                                       duration(summary_.launch_ns), grouped(summary_.launches),
                                       duration(summary_.launch_ns / summary_.launches),
                                       grouped(summary_.graph_launches)));
    if (!summary_.kernels.empty()) kernels();
    if (!summary_.bare.empty()) bare();
    if (!summary_.regions.empty()) regions();
  }

 private:
  std::string place(StackId stack) {
    const ResolvedFrames& frames = selection_.attribution().frames();
    if (innermost_.empty())
      innermost_ =
          innermost_user_frames(selection_.tables(), frames, selection_.options.user_packages);
    const FrameId frame = stack < innermost_.size() ? innermost_[stack] : 0;
    if (frame == 0) return "-";
    return fmt::format("{}:{}", frames[frame].file,
                       frames[frame].line > 0 ? frames[frame].line : frames[frame].first_line);
  }

  // Launches whose kernels have no times.
  void bare() {
    out_ += "#\n";
    out_ += "#    Calls  Trace id   Kernel                                    Launched from\n";
    out_ +=
        "# .......  .........  ........................................  "
        "....................................\n#\n";
    std::size_t shown = 0;
    for (const GpuBareRow& row : summary_.bare) {
      if (shown++ == kMaxKernels) break;
      out_ += fmt::format("{:>9}  {}  {}  {}\n", grouped(row.calls),
                          cell(trace_id(row.id, row.backward), 9), cell(gpu_work_name(row), 40),
                          cut(place(row.stack), 36, true));
    }
    if (summary_.bare.size() > kMaxKernels)
      append_comment(out_, fmt::format("{} more, each called less often",
                                       grouped(summary_.bare.size() - kMaxKernels)));
  }

  void kernels() {
    out_ += "#\n";
    out_ +=
        "#   Share       Total    Calls        Mean  Trace id   Kernel                    Launched "
        "from\n";
    out_ +=
        "# .......  ..........  .......  ..........  .........  ........................  "
        "..................\n#\n";
    std::size_t shown = 0;
    for (const GpuKernelRow& row : summary_.kernels) {
      if (shown++ == kMaxKernels) break;
      out_ += fmt::format(
          "{:>9}{:>12}{:>9}{:>12}  {}  {}  {}\n", percent(row.total_ns, summary_.work_ns),
          duration(row.total_ns), grouped(row.calls), duration(row.total_ns / row.calls),
          cell(trace_id(row.id, row.backward), 9),
          cell(gpu_work_name(selection_.tables(), row), 24), cut(place(row.stack), 18, true));
    }
    if (summary_.kernels.size() > kMaxKernels)
      append_comment(out_, fmt::format("{} more kernels, each less",
                                       grouped(summary_.kernels.size() - kMaxKernels)));
  }

  void regions() {
    out_ += "#\n";
    append_comment(
        out_,
        "Compiled regions on the GPU, over their recorded runs. Gaps: between one launch "
        "and the next of a run. Idle: of the GPU, from a run's first kernel to its last. Late: of "
        "that, when the next kernel had not been launched.");
    out_ += "#\n";
    out_ +=
        "# Trace id       Runs   Launches    Kernels    GPU time  Launching        Gaps        "
        "Idle  Late\n";
    out_ +=
        "# .........  ........  .........  .........  ..........  .........  ..........  "
        "..........  ....\n#\n";
    std::size_t shown = 0;
    for (const GpuRegionRow& row : summary_.regions) {
      if (shown++ == kMaxRegions) break;
      out_ +=
          fmt::format("  {}{:>10}{:>11}{:>11}{:>12}{:>11}{:>12}{:>12}{:>6}\n",
                      cell(trace_id(row.id, row.backward), 9), grouped(row.runs),
                      grouped(row.launches), row.works > 0 ? grouped(row.works) : "-",
                      known(row.work_ns, row.works), known(row.launch_ns, row.launch_ns),
                      known(row.gap_ns, row.launch_ns), known(row.idle_ns, row.works),
                      row.idle_ns > 0 ? fmt::format("{} %", row.late_ns * 100 / row.idle_ns) : "-");
    }
    region_notes();
  }

  // What many regions do not have, below the table, which has no room for more columns.
  void region_notes() {
    const std::vector<GpuVerdict> verdicts = gpu_region_verdicts(selection_, summary_);
    std::size_t shown = 0;
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      const GpuRegionRow& row = summary_.regions[i];
      std::string text = region_note(row, verdicts[i]);
      if (text.empty()) continue;
      if (shown++ == 0) out_ += "#\n";
      append_comment(out_, trace_id(row.id, row.backward) + ": " + text);
      if (shown == kMaxRegionNotes) break;
    }
  }

  static std::string region_note(const GpuRegionRow& row, const GpuVerdict& verdict) {
    std::string text = gpu_verdict_text(verdict);
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
    if (row.graph_launches > 0)
      add(row.graph_launches == 1 ? "1 launch of a CUDA graph"
                                  : grouped(row.graph_launches) + " launches of a CUDA graph");
    if (row.graphs_recorded > 0)
      add(fmt::format("{} {} recorded in {}", grouped(row.graphs_recorded),
                      row.graphs_recorded == 1 ? "CUDA graph" : "CUDA graphs",
                      duration(row.graph_record_ns)));
    if (row.copies.count > 0) add(memory_text(row.copies, "copy", "copies"));
    if (row.memsets.count > 0) add(memory_text(row.memsets, "memset", "memsets"));
    if (row.streams.size() > 1)
      add(fmt::format("{} streams, two or more of them at once for {} of {}",
                      grouped(row.streams.size()), duration(row.overlap_ns),
                      duration(row.busy_ns)));
    return text;
  }

  std::string& out_;
  const Selection& selection_;
  const GpuWork& gpu_;
  GpuSummary summary_;
  std::vector<FrameId> innermost_;  // by stack
};

}  // namespace

std::string gpu_work_name(const Tables& tables, const GpuKernelRow& row) {
  static constexpr const char* kCopies[] = {"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                            "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
  if (row.kind == DYNPROF_GPU_MEMSET) return "Memset";
  if (row.kind == DYNPROF_GPU_MEMCPY)
    return std::string("Memcpy ") + kCopies[row.copy_kind < std::size(kCopies) ? row.copy_kind : 0];
  return gpu_kernel_name(tables.strings[row.name]);
}

std::string gpu_work_name(const GpuBareRow& row) {
  if (!row.kernel.empty()) return gpu_kernel_name(row.kernel);
  if (!row.caller.empty()) return fmt::format("(launched by {})", row.caller);
  return fmt::format("({})", gpu_call_name(row.call));
}

void append_gpu(std::string& out, const Selection& selection) {
  const GpuWork& gpu = selection.analysis.gpu();
  if (!gpu.empty()) GpuTable(out, selection, gpu).append();
}

}  // namespace dynprof
