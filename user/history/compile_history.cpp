#include "user/history/compile_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "user/history/break_join.h"
#include "user/history/graph_breaks.h"
#include "user/history/metric_fields.h"
#include "user/history/row_reader.h"
#include "user/target/bounded_memory.h"
#include "user/target/torch_layout.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 1024;  // the deque's limit is 64, but a program may raise it
constexpr std::size_t kMaxBreaks = 2048;
constexpr std::size_t kMaxTimed = 4096;  // functions
constexpr std::size_t kMaxCalls = 2000;  // seconds of one
constexpr std::size_t kMaxAllCalls = 100'000;
constexpr std::size_t kMaxGroups = 256;
constexpr std::size_t kMaxCounts = 2048;
constexpr std::size_t kMaxText = 65'536;
constexpr int kTries = 3;

class Reader {
 public:
  Reader(RemoteObjects& objects, const PythonRuntime& runtime, CompileHistory& history)
      : objects_(objects), values_(objects, runtime), runtime_(runtime), history_(history) {}

  void read() {
    utils_ = objects_.find_module(runtime_.main_interpreter, "torch._dynamo.utils").value_or(0);
    history_.dynamo_imported = utils_ != 0;
    if (utils_ == 0) return;
    read_rows();
    read_times();
    read_counters();
    read_breaks();
  }

 private:
  void problem(std::string text) { history_.problems.push_back(std::move(text)); }

  void unread(const char* where, std::size_t entries) {
    if (entries != 0) problem(fmt::format("{} entries of {} could not be read", entries, where));
  }

  std::uint64_t global(std::string_view name) {
    std::uint64_t found = objects_.module_get(utils_, name).value_or(0);
    if (found == 0) problem(fmt::format("torch._dynamo.utils has no {}", name));
    return found;
  }

  // ---- rows --------------------------------------------------------------------------------------

  void read_rows() {
    std::uint64_t deque = global("_compilation_metrics");
    if (deque == 0) return;
    std::size_t length = 0;
    bool steady = false;
    for (int i = 0; i < kTries && !steady; ++i) {
      auto items = values_.deque_items(deque, kMaxRows);
      if (!items) {
        problem("_compilation_metrics could not be read as a deque");
        return;
      }
      length = items->size();
      rows_of(*items);
      // A compile that ended meanwhile may have pushed an old one out, which was then freed.
      auto after = values_.deque_items(deque, kMaxRows);
      steady = after == items;
      if (!steady && i + 1 == kTries) keep_living(*items, after);
    }
    if (unread_rows_ != 0) {
      problem(fmt::format("{} of {} items of _compilation_metrics are not CompilationMetrics",
                          unread_rows_, length));
    }
    for (const std::string& name : unread_fields_) {
      problem(fmt::format("CompilationMetrics.{} could not be read", name));
    }
    history_.rows_dropped = length != 0 && values_.deque_limit(deque) == length;
    drop_runtime_rows();
    name_by_frame(history_.rows);
  }

  // The rows that were there before and after they were read: the end of one list, the start of the
  // other. An address alone would not do, the next row may get a freed one's.
  void keep_living(const std::vector<std::uint64_t>& before,
                   const std::optional<std::vector<std::uint64_t>>& after) {
    std::size_t gone = 0;
    while (gone < before.size()) {
      auto kept = before.begin() + static_cast<std::ptrdiff_t>(gone);
      std::size_t count = before.size() - gone;
      if (after && count <= after->size() && std::equal(kept, before.end(), after->begin())) break;
      ++gone;
    }
    std::size_t dropped = 0;
    for (std::size_t i = 0; i < gone; ++i) dropped += is_row(before[i]) ? 1 : 0;
    history_.rows.erase(history_.rows.begin(),
                        history_.rows.begin() + static_cast<std::ptrdiff_t>(dropped));
    problem(fmt::format("_compilation_metrics changed at each of {} readings: {} rows are left out",
                        kTries, dropped));
  }
  bool is_row(std::uint64_t item) const {
    return std::find(row_items_.begin(), row_items_.end(), item) != row_items_.end();
  }

  void rows_of(const std::vector<std::uint64_t>& items) {
    history_.rows.clear();
    row_items_.clear();
    unread_rows_ = 0;
    unread_fields_.clear();
    for (std::uint64_t item : items) {
      auto row = read_row(values_, item, unread_fields_);
      if (!row) {
        ++unread_rows_;
        continue;
      }
      history_.rows.push_back(std::move(*row));
      row_items_.push_back(item);
    }
  }

  void drop_runtime_rows() {
    for (HistoryRow& row : history_.rows) {
      if (is_runtime(row)) history_.runtime.push_back(row);
    }
    std::erase_if(history_.rows, is_runtime);
  }

  // ---- times and counters ------------------------------------------------------------------------

  void read_times() {
    std::uint64_t dict = global("compilation_time_metrics");
    auto entries = dict == 0 ? std::nullopt : values_.dict_items(dict, kMaxTimed);
    if (!entries) {
      if (dict != 0) problem("compilation_time_metrics could not be read");
      return;
    }
    std::vector<std::uint64_t> calls;
    std::size_t cut = 0;
    std::size_t unreadable = 0;
    for (const DictEntry& entry : *entries) {
      TimedFunction timed;
      timed.name = values_.read_str(entry.key, kMaxText).value_or("");
      auto length = values_.length(entry.value);
      std::size_t room = std::min(kMaxCalls, kMaxAllCalls - calls.size());
      auto tail = values_.list_tail(entry.value, room);
      if (timed.name.empty() || !length || !tail) {
        ++unreadable;
        continue;
      }
      timed.calls = std::max(*length, tail->size());
      if (timed.calls > tail->size()) ++cut;
      timed.seconds.resize(tail->size());
      calls.insert(calls.end(), tail->begin(), tail->end());
      history_.times.push_back(std::move(timed));
    }
    fill_seconds(calls);
    unread("compilation_time_metrics", unreadable);
    if (cut != 0) {
      problem(fmt::format(
          "of {} entries of compilation_time_metrics only the newest times are read", cut));
    }
  }

  void fill_seconds(const std::vector<std::uint64_t>& calls) {
    std::vector<RemoteValue> numbers = values_.values(calls);
    std::size_t at = 0;
    std::size_t bad = 0;
    for (TimedFunction& timed : history_.times) {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < timed.seconds.size(); ++i, ++at) {
        bool number = numbers[at].kind == RemoteValue::Kind::kFloat;
        if (number) timed.seconds[kept++] = numbers[at].number;
        if (!number) ++bad;
      }
      timed.seconds.resize(kept);
    }
    if (bad != 0) problem(fmt::format("{} times of compilation_time_metrics are not numbers", bad));
  }

  void read_counters() {
    std::uint64_t dict = global("counters");
    auto groups = dict == 0 ? std::nullopt : values_.dict_items(dict, kMaxGroups);
    if (!groups) {
      if (dict != 0) problem("counters could not be read");
      return;
    }
    std::size_t unreadable = 0;
    for (const DictEntry& group : *groups) {
      CounterGroup found;
      found.name = values_.read_str(group.key, kMaxText).value_or("");
      auto counts = values_.dict_items(group.value, kMaxCounts);
      if (found.name.empty() || !counts) {
        ++unreadable;
        continue;
      }
      for (const DictEntry& count : *counts) {
        auto key = values_.read_str(count.key, kMaxText);
        auto number = values_.read_int(count.value);
        if (!key || !number) ++unreadable;
        if (key && number) found.counts.emplace_back(std::move(*key), *number);
      }
      history_.counters.push_back(std::move(found));
    }
    unread("counters", unreadable);
  }

  // ---- graph breaks ------------------------------------------------------------------------------

  void read_breaks() {
    std::uint64_t list = global("graph_break_reasons");
    if (list == 0) return;
    auto reasons = values_.list_tail(list, kMaxBreaks);
    auto length = values_.length(list);
    if (!reasons || !length) {
      problem("graph_break_reasons could not be read as a list");
      return;
    }
    std::size_t unreadable = 0;
    for (std::uint64_t reason : *reasons) {
      if (auto found = read_graph_break(values_, reason)) {
        history_.graph_breaks.push_back(std::move(*found));
      } else {
        ++unreadable;
      }
    }
    if (*length > reasons->size()) problem("only the newest graph breaks are shown");
    unread("graph_break_reasons", unreadable);
    bool every_break = unreadable == 0 && *length == reasons->size();
    join_graph_breaks(history_, frame_compiles(), every_break);
  }

  FrameCompiles frame_compiles() {
    FrameCompiles found;
    auto module = objects_.find_module(runtime_.main_interpreter, "torch._dynamo.convert_frame");
    if (!module) return found;
    if (auto counter = objects_.module_get(*module, "FRAME_COUNTER")) {
      history_.frames = values_.read_int(*counter);
    }
    auto counter = objects_.module_get(*module, "FRAME_COMPILE_COUNTER");
    auto entries = counter ? values_.dict_items(*counter, kMaxBreaks * 8) : std::nullopt;
    std::vector<std::uint64_t> both;
    for (const DictEntry& entry : entries.value_or(std::vector<DictEntry>())) {
      both.insert(both.end(), {entry.key, entry.value});
    }
    std::vector<RemoteValue> numbers = values_.values(both);
    for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) {
      if (numbers[i].kind == RemoteValue::Kind::kInt &&
          numbers[i + 1].kind == RemoteValue::Kind::kInt) {
        found[numbers[i].integer] = numbers[i + 1].integer;
      }
    }
    return found;
  }

  RemoteObjects& objects_;
  RemoteValues values_;
  const PythonRuntime& runtime_;
  CompileHistory& history_;
  std::uint64_t utils_ = 0;
  std::vector<std::uint64_t> row_items_;  // the objects of history_.rows
  std::size_t unread_rows_ = 0;
  std::set<std::string> unread_fields_;
};

}  // namespace

Result<CompileHistory> read_compile_history(RemoteObjects& objects, const PythonRuntime& runtime) {
  auto torch = resolve_torch(objects, runtime);
  if (!torch) {
    return error(fmt::format("process {} has not imported torch", runtime.pid),
                 "run this again after it used torch.compile");
  }
  CompileHistory history;
  history.pid = runtime.pid;
  history.torch = torch->version;
  history.python = runtime.version;
  // A process that compiled a thousand times takes a tenth of this.
  BoundedMemory memory(objects.memory(), 100'000, 128 << 20);
  RemoteObjects bounded(memory, objects.layout());
  bounded.set_str_type(objects.str_type());
  Reader(bounded, runtime, history).read();
  if (memory.exhausted()) {
    history.problems.push_back("torch's records exceed the read limit: parts are missing");
  }
  return history;
}

}  // namespace dynprof
