#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/html/tables.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 500;

template <class Row>
void limit(PageTable& table, std::vector<Row>& rows) {
  if (rows.size() <= kMaxRows) return;
  table.left_out = rows.size() - kMaxRows;
  rows.resize(kMaxRows);
}

PageCell share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {};
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string trace_id(const TraceId& id, bool backward) {
  if (!is_valid(id)) return "-";
  return (backward ? "backward " : "") + id.text();
}

}  // namespace

std::string frame_place(const ResolvedFrame& frame) {
  if (frame.kind != FrameKind::kPython)
    return fmt::format("{} in {}", frame.function, base_name(frame.file));
  return fmt::format("{} {}:{}", frame.function, base_name(frame.file), frame.line);
}

PageTable user_line_table(const Selection& selection) {
  PageTable table{"lines", "Lines of user code"};
  table.note =
      "The innermost line of user code on each sample's stack, in CPU time. In compile: the part "
      "of "
      "it that torch.compile took.";
  table.columns = {{"Line", ColumnType::kPlace},         {"Function"},
                   {"CPU", ColumnType::kSeconds},        {"Share", ColumnType::kPercent},
                   {"In compile", ColumnType::kSeconds}, {"Wait", ColumnType::kSeconds},
                   {"Samples", ColumnType::kCount}};
  std::vector<UserLineRow> rows = user_line_rows(selection);
  limit(table, rows);
  const ResolvedFrames& frames = selection.attribution().frames();
  for (const UserLineRow& row : rows) {
    const ResolvedFrame& frame = frames[row.frame];
    table.rows.push_back({{user_line_place(frame), std::string(frame.function), cell_of(row.ns),
                           share(row.ns, selection.ns), cell_of(row.compiling_ns),
                           cell_of(row.wait_ns), cell_of(row.samples)}});
  }
  return table;
}

PageTable module_table(const Selection& selection) {
  PageTable table{"modules", "nn.Modules"};
  ModuleRows modules = module_rows(selection, kMaxRows);
  table.left_out = modules.left_out;
  table.note = fmt::format(
      "{:.2f} s in which compiles were at an operator of a module. Total: with the modules inside "
      "it; the phases are of that.",
      static_cast<double>(modules.sum_ns) * 1e-9);
  table.columns = {{"Module"},
                   {"Total", ColumnType::kSeconds},
                   {"Share", ColumnType::kPercent},
                   {"Own", ColumnType::kSeconds},
                   {"Dynamo", ColumnType::kSeconds},
                   {"AOT", ColumnType::kSeconds},
                   {"Inductor", ColumnType::kSeconds}};
  for (ModuleRow& row : modules.rows)
    table.rows.push_back(
        {{std::move(row.path), cell_of(row.total_ns), share(row.total_ns, modules.sum_ns),
          cell_of(row.own_ns), cell_of(row.of(LineUse::kTracing)),
          cell_of(row.of(LineUse::kRetracing)), cell_of(row.of(LineUse::kLowering))}});
  return table;
}

PageTable start_up_table(const Selection& selection) {
  PageTable table{"startup", "Start-up"};
  table.note =
      "Of the main thread, from the process's exec to its first step without a compile. Own code: "
      "anything that is none of the others.";
  table.columns = {{"Process"},
                   {"At", ColumnType::kSeconds},
                   {"For", ColumnType::kSeconds},
                   {"Share", ColumnType::kPercent},
                   {"What"}};
  for (const StartUp& start_up : selection.analysis.start_ups()) {
    const std::uint64_t whole = start_up.end_ns - start_up.begin_ns;
    for (const StartUpSlice& slice : start_up.slices)
      table.rows.push_back(
          {{std::to_string(start_up.pid), cell_of(slice.begin_ns - start_up.begin_ns),
            cell_of(slice.end_ns - slice.begin_ns), share(slice.end_ns - slice.begin_ns, whole),
            std::string(start_up_text(slice.part))}});
  }
  return table;
}

PageTable wait_table(const Selection& selection) {
  PageTable table{"waits", "Waits"};
  WaitSums sums = sum_waits(selection);
  if (sums.rows.empty()) return table;
  table.note = fmt::format(
      "Of all threads together: {:.2f} s, {} with a stack; and {:.2f} s ready without a CPU.",
      static_cast<double>(sums.all_ns) * 1e-9, percent(sums.with_stack_ns, sums.all_ns),
      static_cast<double>(sums.runnable_ns) * 1e-9);
  table.columns = {{"For"},
                   {"Thread"},
                   {"Where", ColumnType::kPlace},
                   {"Wait", ColumnType::kSeconds},
                   {"Times", ColumnType::kCount}};
  limit(table, sums.rows);
  for (const WaitRow& row : sums.rows) {
    std::string where = "(no stack)";
    if (row.has_frame) where = frame_place(selection.attribution().frames()[row.frame]);
    table.rows.push_back(
        {{std::string(row.what), row.name, std::move(where), cell_of(row.ns), cell_of(row.count)}});
  }
  return table;
}

PageTable process_table(const Selection& selection) {
  PageTable table{"processes", "Child processes"};
  const ProcessTree& tree = selection.analysis.processes();
  std::vector<ChildProcessRow> rows = process_rows(tree, selection.analysis.jobs());
  table.note = fmt::format(
      "{} processes; {:.2f} s of CPU for compiles, {:.2f} s shared by several, {:.2f} s for none.",
      grouped(tree.all().size()), static_cast<double>(tree.joined_cpu_ns()) * 1e-9,
      static_cast<double>(tree.shared_cpu_ns()) * 1e-9,
      static_cast<double>(tree.other_cpu_ns()) * 1e-9);
  table.columns = {{"For"},
                   {"Trace id"},
                   {"Count", ColumnType::kCount},
                   {"CPU", ColumnType::kSeconds},
                   {"Wall", ColumnType::kSeconds},
                   {"Peak MiB", ColumnType::kCount}};
  limit(table, rows);
  for (const ChildProcessRow& row : rows) {
    const bool joined = row.compile != kNoCompile;
    table.rows.push_back(
        {{row.work, joined ? selection.attribution().label(row.compile) : std::string("-"),
          cell_of(row.count), cell_of(row.cpu_ns), cell_of(row.wall_ns),
          cell_of((row.peak_bytes + (1u << 19)) >> 20)}});
  }
  return table;
}

std::vector<PageTable> gpu_tables(const Selection& selection) {
  std::vector<PageTable> tables;
  const GpuWork& gpu = selection.analysis.gpu();
  if (gpu.empty()) return tables;
  GpuSummary summary = summarize(gpu);
  const ResolvedFrames& frames = selection.attribution().frames();
  const std::vector<FrameId> innermost =
      innermost_user_frames(selection.tables(), frames, selection.options.user_packages);
  auto place = [&](StackId stack) {
    const FrameId frame = stack < innermost.size() ? innermost[stack] : 0;
    return frame == 0 ? std::string("-") : user_line_place(frames[frame]);
  };
  if (!summary.kernels.empty()) {
    PageTable table{"kernels", "GPU kernels and copies"};
    table.columns = {{"Kernel"},
                     {"Trace id"},
                     {"Launched from", ColumnType::kPlace},
                     {"Total", ColumnType::kSeconds},
                     {"Share", ColumnType::kPercent},
                     {"Calls", ColumnType::kCount},
                     {"Mean", ColumnType::kSeconds}};
    limit(table, summary.kernels);
    for (const GpuKernelRow& row : summary.kernels)
      table.rows.push_back(
          {{gpu_work_name(selection.tables(), row), trace_id(row.id, row.backward),
            place(row.stack), cell_of(row.total_ns), share(row.total_ns, summary.work_ns),
            cell_of(row.calls), cell_of(row.total_ns / std::max<std::uint64_t>(row.calls, 1))}});
    tables.push_back(std::move(table));
  }
  if (!summary.bare.empty()) {
    PageTable table{"launches", "CUDA calls without times"};
    table.note = "Seen without libdynprof_cupti.so: how long what they started ran is not known.";
    table.columns = {{"Kernel"},
                     {"Trace id"},
                     {"Launched from", ColumnType::kPlace},
                     {"Calls", ColumnType::kCount}};
    limit(table, summary.bare);
    for (const GpuBareRow& row : summary.bare)
      table.rows.push_back({{gpu_work_name(row), trace_id(row.id, row.backward), place(row.stack),
                             cell_of(row.calls)}});
    tables.push_back(std::move(table));
  }
  if (!summary.regions.empty()) {
    PageTable table{"regions", "Compiled regions on the GPU"};
    table.note =
        "Over their recorded runs. Gaps: between one launch and the next of a run. Idle: of the "
        "GPU, "
        "from a run's first kernel to its last. Late: of that, when the next kernel had not been "
        "launched. Overlap: work of a run was running on two streams or more.";
    table.columns = {{"Trace id"},
                     {"Runs", ColumnType::kCount},
                     {"Launches", ColumnType::kCount},
                     {"Kernels", ColumnType::kCount},
                     {"GPU time", ColumnType::kSeconds},
                     {"Launching", ColumnType::kSeconds},
                     {"Gaps", ColumnType::kSeconds},
                     {"Idle", ColumnType::kSeconds},
                     {"Late", ColumnType::kSeconds},
                     {"Copies", ColumnType::kSeconds},
                     {"Streams", ColumnType::kCount},
                     {"Overlap", ColumnType::kSeconds}};
    limit(table, summary.regions);
    auto known = [](std::uint64_t ns, std::uint64_t seen) {
      return seen > 0 ? cell_of(ns) : PageCell{};
    };
    for (const GpuRegionRow& row : summary.regions)
      table.rows.push_back(
          {{trace_id(row.id, row.backward), cell_of(row.runs), cell_of(row.launches),
            known(row.works, row.works), known(row.work_ns, row.works),
            known(row.launch_ns, row.launch_ns), known(row.gap_ns, row.launch_ns),
            known(row.idle_ns, row.works), known(row.late_ns, row.works),
            known(row.copies.ns, row.copies.count), known(row.streams.size(), row.streams.size()),
            known(row.overlap_ns, row.streams.size() > 1)}});
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace dynprof
