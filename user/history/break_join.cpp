#include "user/history/break_join.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "user/history/metric_fields.h"

namespace dynprof {
namespace {

// Forward rows since the last reset(), which empties graph_break_reasons and begins again at 0/0.
std::vector<std::size_t> rows_since_reset(const std::vector<HistoryRow>& rows) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto id = frame_compile(rows[i].trace_id);
    if (rows[i].kind != CompileKind::kForward || !id) continue;
    if (*id == FrameCompile{0, 0}) found.clear();
    found.push_back(i);
  }
  return found;
}

// The rows are of compiles that Dynamo has counted. Else they are older than the last reset(), after
// which nothing has ended yet. (One frame compiled once before and being compiled now looks alike.)
bool rows_fit(const std::vector<HistoryRow>& all, const std::vector<std::size_t>& rows,
              const FrameCompiles& compiles) {
  std::set<FrameCompile> seen;
  for (std::size_t row : rows) {
    auto id = frame_compile(all[row].trace_id);
    if (!id || !seen.insert(*id).second) return false;
    auto count = compiles.find(id->frame);
    if (count == compiles.end() || id->compile < 0 || id->compile >= count->second) return false;
  }
  return true;
}

// Every compile that Dynamo began since the reset has its row: none is dropped, none is running.
bool nothing_is_missing(const CompileHistory& history, const std::vector<std::size_t>& rows,
                        const FrameCompiles& compiles) {
  std::int64_t total = 0;
  for (const auto& [frame, count] : compiles) total += count;
  return total == static_cast<std::int64_t>(rows.size()) &&
         history.frames == static_cast<std::int64_t>(compiles.size());
}

class Joiner {
 public:
  Joiner(CompileHistory& history, std::vector<std::size_t> rows, bool complete)
      : history_(history), rows_(std::move(rows)), complete_(complete) {}

  void join() {
    // By the function that was being compiled; the reason names a restart, or it does not.
    std::map<std::tuple<std::string, std::string, std::string>, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < history_.graph_breaks.size(); ++i) {
      const HistoryBreak& cause = history_.graph_breaks[i];
      if (cause.stack.empty()) continue;
      const UserFrame& root = cause.stack.front();
      bool restarted = !rows_with_reason(root, cause.reason).empty();
      groups[{root.file, root.function, restarted ? cause.reason : ""}].push_back(i);
    }
    for (const auto& [key, breaks] : groups) {
      const UserFrame& root = history_.graph_breaks[breaks.front()].stack.front();
      if (const std::string& reason = std::get<2>(key); !reason.empty()) {
        // A row with the restart reason had at least one such break: of as many breaks as rows each
        // has one. Both lists are in the order of time.
        pair_up(breaks, rows_with_reason(root, reason));
      } else if (complete_) {
        join_without_restart(breaks, root);
      }
    }
    for (std::size_t i = 0; i < history_.graph_breaks.size(); ++i) {
      if (auto row = history_.graph_breaks[i].compile) {
        history_.rows[*row].graph_breaks.push_back(i);
      }
    }
  }

 private:
  bool is_of(const HistoryRow& row, const UserFrame& root) const {
    return !row.function.empty() && row.function == root.function && row.file == root.file;
  }
  // What goes on after a break of that function: torch gives its breaks the function's own name.
  bool is_resumption(const HistoryRow& row, const UserFrame& root) const {
    return row.file == root.file &&
           row.function.starts_with("torch_dynamo_resume_in_" + root.function + "_at_");
  }
  std::vector<std::size_t> rows_with_reason(const UserFrame& root, const std::string& reason) {
    std::vector<std::size_t> found;
    for (std::size_t i : rows_) {
      const HistoryRow& row = history_.rows[i];
      bool has = std::find(row.restart_reasons.begin(), row.restart_reasons.end(), reason) !=
                 row.restart_reasons.end();
      if (has && (is_of(row, root) || is_resumption(row, root))) found.push_back(i);
    }
    return found;
  }
  void pair_up(const std::vector<std::size_t>& breaks, const std::vector<std::size_t>& rows) {
    if (breaks.size() != rows.size()) return;
    for (std::size_t i = 0; i < breaks.size(); ++i) {
      history_.graph_breaks[breaks[i]].compile = rows[i];
    }
  }
  // A jump on data, which ends the graph in the same attempt. With every compile known, the function
  // is one of the rows'; methods of one name are told apart by where they begin.
  // Not where the function was resumed: the break may be one of what resumed it.
  void join_without_restart(const std::vector<std::size_t>& breaks, const UserFrame& root) {
    for (std::size_t i : rows_)
      if (is_resumption(history_.rows[i], root)) return;
    std::map<std::int64_t, std::vector<std::size_t>> by_begin;
    for (std::size_t i : rows_) {
      const HistoryRow& row = history_.rows[i];
      if (is_of(row, root) && row.line) by_begin[*row.line].push_back(i);
    }
    std::map<std::int64_t, std::vector<std::size_t>> breaks_of;
    for (std::size_t i : breaks) {
      auto after = by_begin.upper_bound(history_.graph_breaks[i].stack.front().line);
      if (after != by_begin.begin()) breaks_of[std::prev(after)->first].push_back(i);
    }
    for (const auto& [begin, mine] : breaks_of) {
      const std::vector<std::size_t>& rows = by_begin[begin];
      if (rows.size() == 1) {
        for (std::size_t i : mine) history_.graph_breaks[i].compile = rows.front();
        continue;
      }
      // Without a restart a compile ends in at most one.
      bool one_each = std::all_of(rows.begin(), rows.end(),
                                  [&](std::size_t i) { return history_.rows[i].attempt == 0; });
      if (one_each) pair_up(mine, rows);
    }
  }

  CompileHistory& history_;
  std::vector<std::size_t> rows_;
  bool complete_;
};

}  // namespace

void join_graph_breaks(CompileHistory& history, const FrameCompiles& compiles, bool every_break) {
  if (!every_break || history.graph_breaks.empty()) return;
  std::vector<std::size_t> rows = rows_since_reset(history.rows);
  if (!rows_fit(history.rows, rows, compiles)) return;
  bool complete = nothing_is_missing(history, rows, compiles);
  Joiner(history, std::move(rows), complete).join();
}

}  // namespace dynprof
