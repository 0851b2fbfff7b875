#include "symbolizer/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "symbolizer/compare/compare_rows.h"
#include "symbolizer/compare/significance.h"

namespace dynprof {
namespace {

double seconds(double ns) { return ns * 1e-9; }

struct Side {
  explicit Side(const Analysis& of)
      : analysis(of),
        meta(of.attribution().recording().meta()),
        compiles(compile_times(of)),
        functions(function_times(of)),
        lines(user_line_times(of)) {
    const Recording& recording = of.attribution().recording();
    const std::uint64_t end_ns = std::max(recording.trailer().end_ns, meta.start_ns);
    recorded_s = static_cast<double>(end_ns - meta.start_ns) * 1e-9;
    for (const StackCount& count : of.counts().all()) cpu_ns += count.ns;
    for (const auto& [name, time] : compiles.wall) compile_ns += time.ns;
    for (const auto& [name, time] : compiles.wall) compile_count += time.count;
  }

  const Analysis& analysis;
  const Meta& meta;
  CompileTimes compiles;
  SampledTimes functions, lines;
  double recorded_s = 0;
  std::uint64_t cpu_ns = 0, compile_ns = 0, compile_count = 0;
};

class Comparer {
 public:
  Comparer(const Analysis& a, const Analysis& b) : a_(a), b_(b) {}

  Comparison compare() {
    add_facts();
    add_notes();
    add_compiles();
    add_groups();
    add_sampled("functions", "Functions while compiling, without what they call",
                CompareTimes::kSampled, a_.functions.compiling, b_.functions.compiling);
    add_sampled("lines", "Lines of user code while compiling", CompareTimes::kSampled,
                a_.lines.compiling, b_.lines.compiling);
    add_sampled("run-functions", "Functions outside compiles, without what they call",
                CompareTimes::kSampledPerSec, a_.functions.running, b_.functions.running);
    add_sampled("run-lines", "Lines of user code outside compiles", CompareTimes::kSampledPerSec,
                a_.lines.running, b_.lines.running);
    add_sampled("generated", "Generated code and kernels outside compiles",
                CompareTimes::kSampledPerSec, generated_times(a_.analysis),
                generated_times(b_.analysis));
    add_gpu();
    return std::move(result_);
  }

 private:
  void fact(const char* title, std::string a, std::string b) {
    result_.facts.push_back({title, std::move(a), std::move(b)});
  }

  void add_facts() {
    auto both = [&](const char* title, const auto& text_of) {
      fact(title, text_of(a_), text_of(b_));
    };
    both("Recorded", [](const Side& side) { return fmt::format("{:.2f} s", side.recorded_s); });
    both("Command", [](const Side& side) { return side.meta.command; });
    both("Python, torch", [](const Side& side) {
      return fmt::format("{}, {}", side.meta.python.empty() ? "none" : side.meta.python,
                         side.meta.torch.empty() ? "none" : side.meta.torch);
    });
    both("Machine", [](const Side& side) {
      return fmt::format("{}, Linux {}", side.meta.host, side.meta.kernel);
    });
    both("Samples", [](const Side& side) {
      return fmt::format("{} at {} Hz", side.analysis.attribution().recording().sample_count(),
                         side.meta.frequency_hz);
    });
    both("Compiles", [](const Side& side) {
      return fmt::format("{} in {:.3f} s", side.compile_count,
                         seconds(static_cast<double>(side.compile_ns)));
    });
    both("No CPU was free", [](const Side& side) {
      return fmt::format("{:.3f} s", seconds(static_cast<double>(side.compiles.ready_ns)));
    });
    both("CPU time", [](const Side& side) {
      return fmt::format("{:.2f} s", seconds(static_cast<double>(side.cpu_ns)));
    });
  }

  void note_if(bool needed, std::string text) {
    if (needed) result_.notes.push_back(std::move(text));
  }

  void add_notes() {
    note_if(a_.meta.event != b_.meta.event,
            fmt::format("the sampling events differ: {} and {}", a_.meta.event, b_.meta.event));
    note_if(a_.meta.torch != b_.meta.torch,
            "torch's versions differ: its functions may have other names");
    note_if(a_.meta.host != b_.meta.host, "the machines differ: so do times");
    note_if(a_.compiles.exact != b_.compiles.exact,
            "begin and end of compiles are exact in one of them alone");
    for (const auto& [name, side] : {std::pair("A", &a_), std::pair("B", &b_)}) {
      const Recording& recording = side->analysis.attribution().recording();
      note_if(recording.sample_count() < 100,
              fmt::format("{} has {} samples: too few to show small differences", name,
                          recording.sample_count()));
      note_if(side->compiles.left_out > 0,
              fmt::format("{}: {} compiles had ended before the recording began, and are left out",
                          name, side->compiles.left_out));
    }
    note_if(a_.compile_count + b_.compile_count == 0,
            "no torch.compile activity was seen in either");
  }

  static CompareTable table(const char* id, std::string title, const char* count,
                            CompareTimes times) {
    CompareTable table;
    table.id = id;
    table.title = std::move(title);
    table.count = count;
    table.times = times;
    return table;
  }

  void add_compiles() {
    CompareTable compiles =
        table("compiles", "Compiles, by function", "Compiles", CompareTimes::kExact);
    compiles.note =
        a_.compiles.exact && b_.compiles.exact
            ? "Wall time, from exact events. Each is one run: how much runs differ is not known."
            : "Wall time, of some from the first to the last sample. Each is one run: how "
              "much runs differ is not known.";
    fill(compiles, a_.compiles.wall, b_.compiles.wall);
  }

  void add_groups() {
    const bool exact = a_.compiles.exact && b_.compiles.exact;
    CompareTable groups = table("phases", "Phases of all compiles", exact ? "Compiles" : "Samples",
                                exact ? CompareTimes::kExact : CompareTimes::kSampled);
    groups.note = exact ? "Wall time." : "CPU time, from samples.";
    if (a_.compiles.exact == b_.compiles.exact)
      fill(groups, a_.compiles.groups, b_.compiles.groups);
  }

  void add_sampled(const char* id, const char* title, CompareTimes times, const TimesByName& a,
                   const TimesByName& b) {
    CompareTable sampled = table(id, title, "Samples", times);
    sampled.note = times == CompareTimes::kSampledPerSec
                       ? "CPU time per second of recording."
                       : "CPU time, with the compilers and workers that compiles started.";
    fill(sampled, a, b);
  }

  void add_gpu() {
    CompareTable kernels =
        table("gpu", "GPU kernels and copies, the mean of a call", "Calls", CompareTimes::kExact);
    auto means = [](const TimesByName& times) {
      TimesByName result;
      for (const auto& [name, time] : times)
        if (time.count > 0) result[name].add(time.ns / time.count, time.count);
      return result;
    };
    fill(kernels, means(gpu_kernel_times(a_.analysis)), means(gpu_kernel_times(b_.analysis)));
  }

  // What one second of CPU time would count, or of recording.
  static double exposure(const Side& side, CompareTimes times) {
    if (side.meta.period_ns == 0) return 0;
    const double per_second = 1e9 / static_cast<double>(side.meta.period_ns);
    return times == CompareTimes::kSampledPerSec ? per_second * side.recorded_s : per_second;
  }

  void fill(CompareTable& table, const TimesByName& a, const TimesByName& b) {
    if (a.empty() && b.empty()) return;
    const bool per_second = table.times == CompareTimes::kSampledPerSec;
    const double divide_a = per_second ? a_.recorded_s : 1,
                 divide_b = per_second ? b_.recorded_s : 1;
    if (!(divide_a > 0) || !(divide_b > 0)) return;  // nothing was recorded
    TimesByName names = a;
    names.insert(b.begin(), b.end());
    auto put = [](double& ns, std::uint64_t& count, const NamedTime& time, double divide) {
      ns += static_cast<double>(time.ns) / divide;
      count += time.count;
    };
    for (const auto& [name, unused] : names) {
      CompareRow row{name};
      if (auto found = a.find(name); found != a.end())
        put(row.a_ns, row.a_count, found->second, divide_a);
      if (auto found = b.find(name); found != b.end())
        put(row.b_ns, row.b_count, found->second, divide_b);
      table.total.a_ns += row.a_ns;
      table.total.b_ns += row.b_ns;
      table.total.a_count += row.a_count;
      table.total.b_count += row.b_count;
      table.rows.push_back(std::move(row));
    }
    table.total.name = "all";
    if (table.times != CompareTimes::kExact) judge(table);
    std::stable_sort(table.rows.begin(), table.rows.end(),
                     [](const CompareRow& x, const CompareRow& y) {
                       if (x.significant != y.significant) return x.significant;
                       const double of_x = std::abs(x.change_ns()), of_y = std::abs(y.change_ns());
                       if (of_x != of_y) return of_x > of_y;
                       return x.a_ns + x.b_ns > y.a_ns + y.b_ns;
                     });
    result_.tables.push_back(std::move(table));
  }

  void judge(CompareTable& table) const {
    const double of_a = exposure(a_, table.times), of_b = exposure(b_, table.times);
    std::vector<double> probabilities;
    for (CompareRow& row : table.rows) {
      row.probability = difference_probability(row.a_count, row.b_count, of_a, of_b);
      probabilities.push_back(row.probability);
    }
    const std::vector<bool> chosen = significant(probabilities);
    for (std::size_t i = 0; i < table.rows.size(); ++i) table.rows[i].significant = chosen[i];
    CompareRow& total = table.total;
    total.probability = difference_probability(total.a_count, total.b_count, of_a, of_b);
    total.significant = total.probability <= 0.05;
  }

  Side a_, b_;
  Comparison result_;
};

}  // namespace

Comparison compare(const Analysis& a, const Analysis& b) { return Comparer(a, b).compare(); }

}  // namespace dynprof
