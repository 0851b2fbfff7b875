// The report's part about generated kernels, by their names and the lines of user code they are made from; nothing where
// no time was seen in any.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "symbolizer/attribution/generated_copies.h"
#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/attribution/kernel_sources.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 20;
constexpr std::size_t kMaxLines = 3;
constexpr std::size_t kKernelColumns = 38;
constexpr std::size_t kModuleIndent = 28;  // below the kernel's name

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// "/c/ni/cnifi27.main.so" and "/c/ni/cnifi27.main.cpp" -> "cnifi27.main": a hash of its source.
std::string_view stem(std::string_view path) {
  path = base_name(path);
  return path.substr(0, path.rfind('.'));
}

struct Row {
  std::uint64_t ns = 0;
  bool gpu = false;
  std::string name;
  std::set<std::string> ids;
  KernelSource source;
};

class Kernels {
 public:
  explicit Kernels(const Selection& selection)
      : selection_(selection),
        tables_(selection.tables()),
        files_(selection.attribution().generated_copies()),
        sources_(tables_, files_) {}

  std::vector<Row> rows() {
    add_cpu();
    if (!selection_.analysis.gpu().empty()) add_gpu();
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const Row& a, const Row& b) { return a.ns > b.ns; });
    return std::move(rows_);
  }

 private:
  // Files with one stem are copies of one kernel, which several compiles share.
  void add_cpu() {
    std::map<std::string_view, std::vector<const GeneratedCopy*>> by_stem;
    for (const GeneratedCopy& file : files_)
      if (file.kind == "kernel_source" && !file.kernel.empty())
        by_stem[stem(file.origin)].push_back(&file);
    if (by_stem.empty()) return;
    using Files = std::vector<const GeneratedCopy*>;
    std::vector<const Files*> of_frame(tables_.frames.size());
    for (FrameId id = 0; id < tables_.frames.size(); ++id) {
      const Frame& frame = tables_.frames[id];
      if (frame.kind != FrameKind::kNative) continue;
      const auto at = by_stem.find(stem(tables_.strings[frame.object]));
      if (at != by_stem.end()) of_frame[id] = &at->second;
    }
    std::vector<const Files*> of_stack(tables_.stacks.size());
    for (StackId id = 1; id < tables_.stacks.size(); ++id) {
      const StackNode& node = tables_.stacks[id];
      of_stack[id] = of_frame[node.frame];
      if (of_stack[id] == nullptr && node.caller < id) of_stack[id] = of_stack[node.caller];
    }
    std::map<const Files*, std::uint64_t> sums;
    for (const StackCount& count : selection_.counts)
      if (of_stack[count.stack] != nullptr) sums[of_stack[count.stack]] += count.ns;
    for (const auto& [hash, files] : by_stem) {
      const auto sum = sums.find(&files);
      if (sum == sums.end()) continue;
      Row row{.ns = sum->second, .name = files.front()->kernel, .ids = {}, .source = {}};
      for (const GeneratedCopy* file : files) {
        const bool backward = file->direction == "backward";
        add_id(row, file->id, backward);
        add_source(row, sources_.of(file->pid, file->id, backward, file->kernel));
      }
      rows_.push_back(std::move(row));
    }
  }

  void add_gpu() {
    std::map<std::string, Row> by_name;
    for (const GpuKernelRow& kernel : summarize(selection_.analysis.gpu()).kernels) {
      const std::string name = gpu_work_name(tables_, kernel);
      if (!is_valid(kernel.id)) continue;
      Row& row = by_name[name];
      row.ns += kernel.total_ns;
      row.gpu = true;
      row.name = name;
      add_id(row, kernel.id, kernel.backward);
      for (const GeneratedCopy& file : files_)
        if (file.kind == "wrapper" && file.id == kernel.id)
          add_source(row, sources_.of(file.pid, kernel.id, kernel.backward, name));
    }
    // Others are a library's. A module of torch.nn alone has no line of user code.
    for (auto& [name, row] : by_name)
      if (!row.source.lines.empty() || !row.source.modules.empty()) rows_.push_back(std::move(row));
  }

  static void add_id(Row& row, const TraceId& id, bool backward) {
    if (is_valid(id)) row.ids.insert((backward ? "bw " : "") + id.text());
  }
  static void add_source(Row& row, const KernelSource& source) {
    add_new(row.source.lines, source.lines);
    add_new(row.source.modules, source.modules);
  }
  static void add_new(std::vector<std::string>& all, const std::vector<std::string>& some) {
    for (const std::string& one : some)
      if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }

  const Selection& selection_;
  const Tables& tables_;
  const std::vector<GeneratedCopy>& files_;
  KernelSources sources_;
  std::vector<Row> rows_;
};

// "0/0", "0/0 and 2 more".
std::string ids_text(const std::set<std::string>& ids) {
  if (ids.empty()) return "-";
  return ids.size() == 1 ? *ids.begin() : fmt::format("{} +{}", *ids.begin(), ids.size() - 1);
}

std::string lines_text(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kMaxLines); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ",
                        base_name(std::string_view(lines[i]).substr(0, lines[i].rfind(" in "))));
  if (lines.size() > kMaxLines) text += fmt::format(" +{}", lines.size() - kMaxLines);
  return text.empty() ? "-" : text;
}

// "in Transformer.layers.0", "in Transformer.layers.0 and 1 more"
std::string modules_text(const KernelSource& source) {
  if (source.modules.empty()) return "";
  const std::size_t count = source.modules.size();
  const std::string& first = source.modules.front();
  if (count > 1) return fmt::format("in {} and {} more", first, count - 1);
  return "in " + first;
}

}  // namespace

void append_kernels(std::string& out, const Selection& selection) {
  const std::vector<Row> rows = Kernels(selection).rows();
  if (rows.empty()) return;
  append_comment(
      out,
      "Generated kernels: time in the code that Inductor generated, and the lines "
      "and nn.Modules that its operators come from, where they are known. A C++ kernel may "
      "have more.");
  out += "#\n#  Time s   On  Trace id    " + cell("Kernel", kKernelColumns) + "  Lines\n";
  out += "# .......  ...  ..........  " + std::string(kKernelColumns, '.') + "  .....\n#\n";
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const std::string line =
        fmt::format("{:>9.3f}  {}  {}  {}  ", seconds(rows[i].ns), rows[i].gpu ? "GPU" : "CPU",
                    cell(ids_text(rows[i].ids), 10), cell(rows[i].name, kKernelColumns));
    const std::vector<std::string>& lines = rows[i].source.lines;
    out += line + cut(lines_text(lines), kReportColumns - display_width(line), true) + '\n';
    const std::string modules = modules_text(rows[i].source);
    if (modules.empty()) continue;
    out += std::string(kModuleIndent, ' ') + cut(modules, kReportColumns - kModuleIndent) + '\n';
  }
  if (rows.size() > kMaxRows)
    append_comment(out, fmt::format("{} more, each less", grouped(rows.size() - kMaxRows)));
  out += "#\n";
}

}  // namespace dynprof
