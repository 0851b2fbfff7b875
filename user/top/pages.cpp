#include "user/top/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

#include "symbolizer/base/amounts.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::array kOpenOrders = {"age", "id"};
constexpr std::array kFinishedOrders = {"newest", "wall time"};
constexpr std::array kProcessOrders = {"CPU", "memory", "age", "pid"};

// The columns of functions: each is an order, too.
struct FunctionColumn {
  const char* title;
  const char* order;
  double TopFunction::Times::*time;
  bool now;  // of the last seconds, in percent
  int priority;
};
using Times = TopFunction::Times;
constexpr const char* kRegionOrder =
    "compiled, CPU all %";  // the last order: compiled functions alone
constexpr std::array kFunctionColumns = {
    FunctionColumn{"CPU self %", "CPU self %", &Times::cpu_self_s, true, 1},
    FunctionColumn{"all %", "CPU all %", &Times::cpu_all_s, true, 2},
    FunctionColumn{"Wait self %", "wait self %", &Times::wait_self_s, true, 3},
    FunctionColumn{"all %", "wait all %", &Times::wait_all_s, true, 5},
    FunctionColumn{"CPU self s", "CPU self s", &Times::cpu_self_s, false, 6},
    FunctionColumn{"all s", "CPU all s", &Times::cpu_all_s, false, 8},
    FunctionColumn{"Wait self s", "wait self s", &Times::wait_self_s, false, 7},
    FunctionColumn{"all s", "wait all s", &Times::wait_all_s, false, 9}};

constexpr std::size_t kCpuAll = 1;  // of kFunctionColumns
static_assert(kRegionsSort == kFunctionColumns.size());

double time_of(const TopFunction& row, const FunctionColumn& column) {
  return (column.now ? row.now : row.total).*column.time;
}

template <std::size_t N>
const char* name_of(const std::array<const char*, N>& orders, std::size_t sort) {
  return sort < N ? orders[sort] : "";
}

template <class Row, class Less>
std::vector<const Row*> sorted(const std::vector<Row>& rows, Less less) {
  std::vector<const Row*> out;
  for (const Row& row : rows) out.push_back(&row);
  std::stable_sort(out.begin(), out.end(),
                   [&](const Row* a, const Row* b) { return less(*a, *b); });
  return out;
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string node_words(const OpenCompile& compile) {
  return compile.node == 0 ? std::string() : fmt::format("{}/{}", compile.node, compile.nodes);
}

// The two phases that took most of the wall time.
std::string main_phases(const FinishedCompile& row) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, row.phases.size()); ++i) {
    const auto& [phase, seconds] = row.phases[i];
    if (row.wall_s <= 0 || seconds <= 0) break;
    const double share = std::min(100.0, 100 * seconds / row.wall_s);
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", phase_text(phase), share);
  }
  return text;
}

std::string why(const FinishedCompile& row) {
  if (!row.failure.empty()) return "failed: " + row.failure;
  return row.recompile_reason;
}

std::string one_line(std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 1024));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The compiles of each function, newest first: "3/1", "3/1 +2" where there are two more. What goes on after a graph break
// is a function with a name of its own.
class CompiledFunctions {
 public:
  explicit CompiledFunctions(const std::vector<FinishedCompile>& finished) {
    for (const FinishedCompile& compile : finished) {
      // The function of "backward 0/0" is the forward's.
      if (compile.id.find(' ') != std::string::npos || !compile.failure.empty()) continue;
      auto& [id, more] = compiles_[key(compile.function)];
      if (id.empty())
        id = compile.id;
      else
        ++more;
    }
  }

  std::string of(const TopPlace& place) const {
    const auto at = compiles_.find(key(place));
    if (at == compiles_.end()) return "";
    const auto& [id, more] = at->second;
    return more == 0 ? id : fmt::format("{} +{}", id, more);
  }

 private:
  // torch notes co_name, samples have co_qualname.
  using Key = std::tuple<std::string_view, std::int64_t, std::string_view>;
  static Key key(const TopPlace& place) {
    const std::string_view name = place.function;
    return {place.file, place.line, name.substr(name.rfind('.') + 1)};
  }
  std::map<Key, std::pair<std::string, std::size_t>> compiles_;
};

}  // namespace

const char* open_order(std::size_t sort) { return name_of(kOpenOrders, sort); }
const char* finished_order(std::size_t sort) { return name_of(kFinishedOrders, sort); }
const char* process_order(std::size_t sort) { return name_of(kProcessOrders, sort); }
const char* function_order(std::size_t sort) {
  if (sort == kRegionsSort) return kRegionOrder;
  return sort < kFunctionColumns.size() ? kFunctionColumns[sort].order : "";
}

std::string short_age(double seconds) {
  if (seconds < 0) return "-";
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::min(seconds, 1e12));
  if (whole >= 100 * 3600) return fmt::format("{} d", whole / 86400);
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

TopTable open_table(const TopState& state, std::size_t sort) {
  TopTable table;
  table.columns = {{.title = "Id", .least = 7, .most = 20, .priority = 0},
                   {.title = "Function", .least = 8, .most = 28, .priority = 4},
                   {.title = "Phase", .least = 8, .most = 14, .priority = 1},
                   {.title = "Age", .least = 7, .most = 10, .priority = 2, .right = true},
                   {.title = "Thread", .least = 7, .most = 10, .priority = 7, .right = true},
                   {.title = "At", .least = 8, .most = 34, .priority = 5},
                   {.title = "Node", .least = 4, .most = 11, .priority = 6, .right = true},
                   {.title = "Waits for", .least = 9, .most = 80, .priority = 3}};
  auto rows = sorted(state.open, [&](const OpenRow& a, const OpenRow& b) {
    if (a.compile.id.empty() != b.compile.id.empty()) return b.compile.id.empty();
    if (sort == 1) return a.compile.id < b.compile.id;
    return a.compile.age_s.value_or(a.still_s) > b.compile.age_s.value_or(b.still_s);
  });
  for (const OpenRow* row : rows) {
    const OpenCompile& compile = row->compile;
    std::string id = compile.id.empty() ? "(waits)" : compile.id;
    if (compile.attempt > 0) id += fmt::format(" #{}", compile.attempt);
    std::string age = compile.age_s ? short_age(*compile.age_s) : "-";
    if (compile.id.empty()) age = '>' + short_age(row->still_s);  // since we look
    std::string at = compile.at ? place_words(*compile.at) : std::string();
    std::string waits = row->waits;
    if (waits.empty()) waits = compile.state == 'R' ? "" : "(sleeps)";
    table.rows.push_back({std::move(id), or_dash(place_words(compile.function)),
                          or_dash(compile.phase), std::move(age), fmt::format("{}", compile.tid),
                          or_dash(at), or_dash(node_words(compile)),
                          waits.empty() ? "(runs)" : waits});
  }
  return table;
}

TopTable finished_table(const TopState& state, std::size_t sort, bool details) {
  TopTable table;
  table.columns = {{.title = "Id", .least = 7, .most = 20, .priority = 0},
                   {.title = "Function", .least = 8, .most = 28, .priority = 2},
                   {.title = "Ago", .least = 7, .most = 10, .priority = 4, .right = true},
                   {.title = "Wall", .least = 7, .most = 10, .priority = 1, .right = true},
                   {.title = "Mostly", .least = 9, .most = 34, .priority = 3}};
  if (details) table.columns.push_back({.title = "Cache", .least = 5, .most = 5, .priority = 6});
  table.columns.push_back({.title = "Recompiled because", .least = 12, .most = 160, .priority = 5});
  auto rows =
      sorted(state.reading.finished, [&](const FinishedCompile& a, const FinishedCompile& b) {
        return sort == 1 && a.wall_s > b.wall_s;
      });
  for (const FinishedCompile* row : rows) {
    std::string ended = "-";
    if (row->end_us) {
      const double ago = static_cast<double>(state.reading.epoch_us - *row->end_us) * 1e-6;
      ended = short_age(std::max(0.0, ago));
    }
    std::vector<std::string> cells = {
        or_dash(row->id), or_dash(place_words(row->function)), std::move(ended),
        row->wall_s > 0 ? fmt::format("{:.2f} s", row->wall_s) : std::string("-"),
        or_dash(main_phases(*row))};
    if (details) cells.push_back(or_dash(row->cache));
    cells.push_back(one_line(why(*row)));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

TopTable process_table(const TopState& state, std::size_t sort) {
  TopTable table;
  table.columns = {{.title = "Pid", .least = 5, .most = 10, .priority = 0, .right = true},
                   {.title = "CPU %", .least = 5, .most = 8, .priority = 1, .right = true},
                   {.title = "CPU s", .least = 5, .most = 10, .priority = 5, .right = true},
                   {.title = "Memory", .least = 7, .most = 10, .priority = 2, .right = true},
                   {.title = "Age", .least = 7, .most = 10, .priority = 6, .right = true},
                   {.title = "Purpose", .least = 8, .most = 20, .priority = 4},
                   {.title = "Compile", .least = 7, .most = 16, .priority = 7},
                   {.title = "Command", .least = 7, .most = 80, .priority = 3}};
  auto rows = sorted(state.processes, [&](const ProcessRow& a, const ProcessRow& b) {
    switch (sort) {
      case 1:
        return a.process.rss_bytes > b.process.rss_bytes;
      case 2:
        return a.process.age_s > b.process.age_s;
      case 3:
        return a.process.pid < b.process.pid;
      default:
        return std::pair(a.cpu_percent.value_or(0), a.process.cpu_s) >
               std::pair(b.cpu_percent.value_or(0), b.process.cpu_s);
    }
  });
  for (const ProcessRow* row : rows) {
    const TopProcess& process = row->process;
    table.rows.push_back({fmt::format("{}", process.pid),
                          row->cpu_percent ? fmt::format("{:.1f}", *row->cpu_percent) : "-",
                          fmt::format("{:.1f}", process.cpu_s), format_bytes(process.rss_bytes),
                          short_age(process.age_s), or_dash(process.purpose), or_dash(row->compile),
                          or_dash(process.title)});
  }
  return table;
}

TopTable function_table(const TopState& state, std::size_t sort) {
  TopTable table;
  table.columns = {{.title = "Function", .least = 20, .most = 48, .priority = 0},
                   {.title = "Code", .least = 4, .most = 4, .priority = 5},
                   {.title = "Compiled", .least = 8, .most = 14, .priority = 4}};
  for (const FunctionColumn& column : kFunctionColumns)
    table.columns.push_back({.title = column.title,
                             .least = std::string_view(column.title).size(),
                             .most = 12,
                             .priority = column.priority,
                             .right = true});
  const TopFunctions& functions = state.reading.functions;
  const double window_s = std::clamp<double>(functions.sampled_s, 1, kTopWindowSeconds);
  const bool regions = sort == kRegionsSort;
  const FunctionColumn& by =
      kFunctionColumns[regions ? kCpuAll : std::min(sort, kFunctionColumns.size() - 1)];
  const CompiledFunctions compiled(state.reading.finished);
  auto weight = [&](const TopFunction& row) {
    return std::tuple(time_of(row, by), row.now.cpu_all_s + row.now.wait_all_s,
                      row.total.cpu_all_s + row.total.wait_all_s);
  };
  auto rows = sorted(functions.rows, [&](const TopFunction& a, const TopFunction& b) {
    return weight(a) > weight(b);
  });
  for (const TopFunction* row : rows) {
    const std::string ids = compiled.of(row->place);
    if (regions && ids.empty()) continue;
    std::vector<std::string> cells = {or_dash(place_words(row->place)), row->user ? "user" : "-",
                                      or_dash(ids)};
    for (const FunctionColumn& column : kFunctionColumns) {
      const double seconds = time_of(*row, column);
      cells.push_back(column.now ? fmt::format("{:.1f}", 100 * seconds / window_s)
                                 : fmt::format("{:.2f}", seconds));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace dynprof
