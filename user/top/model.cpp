#include "user/top/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/base/amounts.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::string_view kCompiler = "compiler";
constexpr std::string_view kWorker = "compile worker";

// Whether a compile is where it was. What moved while it was read says nothing of its line.
bool same_place(const OpenCompile& now, const OpenCompile& then) {
  if (now.attempt != then.attempt || now.torch_phases != then.torch_phases) return false;
  if (now.wait == TopWait::kCompileLock || then.wait == TopWait::kCompileLock)
    return now.wait == then.wait && now.lock_holder == then.lock_holder;
  if (now.moved || then.moved) return true;
  return now.activity == then.activity && now.at == then.at && now.node == then.node &&
         now.nodes == then.nodes;
}

std::string with_more(const std::string& text, std::size_t more) {
  return more == 0 ? text : text + fmt::format(" and {} more", more);
}

std::string named(const TopProcess& process) {
  return fmt::format("{} (pid {})", process.title, process.pid);
}

std::string child_words(pid_t tid, const std::vector<TopProcess>& processes) {
  const TopProcess* first = nullptr;
  std::size_t more = 0;
  for (const TopProcess& process : processes) {
    if (process.started_by != tid || process.purpose == kWorker) continue;
    if (first) ++more;
    if (!first) first = &process;
  }
  return first ? with_more(named(*first), more) : "a child process";
}

// Compilers that no other compiler started, else the workers that have something to do.
std::string pool_words(const std::vector<TopProcess>& processes) {
  auto is = [&](pid_t pid, std::string_view purpose) {
    return std::any_of(processes.begin(), processes.end(), [&](const TopProcess& process) {
      return process.pid == pid && process.purpose == purpose;
    });
  };
  const TopProcess* first = nullptr;
  std::size_t more = 0, workers = 0, busy = 0;
  for (const TopProcess& process : processes) {
    if (process.purpose == kWorker) {
      ++workers;
      busy += process.state == 'R' ? 1 : 0;
    }
    if (process.purpose != kCompiler || is(process.parent, kCompiler)) continue;
    if (first) ++more;
    if (!first) first = &process;
  }
  if (first) return "the compile pool: " + with_more(named(*first), more);
  if (workers == 0) return "the compile pool";
  return fmt::format("the compile pool: {} of {} workers running", busy, workers);
}

std::string lock_words(const OpenCompile& waiting, const std::vector<OpenCompile>& open) {
  if (waiting.lock_holder == 0) return "the compile lock";
  std::string text = fmt::format("the compile lock, held by thread {}", waiting.lock_holder);
  for (const OpenCompile& other : open) {
    if (other.tid == waiting.lock_holder && !other.id.empty())
      return text + fmt::format(" for {}", other.id);
  }
  return text;
}

std::string wait_words(const OpenCompile& compile, const std::vector<OpenCompile>& open,
                       const std::vector<TopProcess>& processes) {
  switch (compile.wait) {
    case TopWait::kNone:
      return {};
    case TopWait::kCompileLock:
      return lock_words(compile, open);
    case TopWait::kChild:
      return child_words(compile.tid, processes);
    case TopWait::kCompilePool:
      return pool_words(processes);
    case TopWait::kFileLock:
      return "a file lock that another process holds";
    case TopWait::kOther:
      return compile.wait_text;
  }
  return {};
}

const char* doing(const OpenCompile& compile) {
  switch (compile.state) {
    case 'R':
      return "is running";
    case 'D':
      return "is blocked in the kernel";
    case 'T':
    case 't':
      return "is stopped";
    default:
      return "sleeps";
  }
}

std::string stall_sentence(const OpenRow& row) {
  const OpenCompile& compile = row.compile;
  const std::string still = format_seconds(row.still_s);
  std::string thread = fmt::format("thread {}", compile.tid);
  if (!compile.thread.empty()) thread += fmt::format(" \"{}\"", compile.thread);
  if (compile.id.empty())
    return fmt::format("{} has waited for {} for {}.", thread, row.waits, still);
  std::string text = compile.id;
  if (auto function = place_words(compile.function); !function.empty())
    text += fmt::format(" ({})", function);
  text += fmt::format(" has not advanced for {}", still);
  std::string where = compile.phase;
  auto add = [&](const std::string& part) { where += (where.empty() ? "" : ", ") + part; };
  if (compile.at) {
    add((compile.activity.empty() ? "at" : compile.activity) + ' ' + place_words(*compile.at));
  }
  if (compile.node != 0) add(fmt::format("node {} of {}", compile.node, compile.nodes));
  if (!where.empty()) text += ": " + where;
  text += "; " + thread + ' ';
  text += row.waits.empty() ? doing(compile) : "waits for " + row.waits;
  return text + '.';
}

}  // namespace

std::string place_words(const TopPlace& place) {
  std::string text = place.function;
  if (place.file.empty()) return text;
  if (!text.empty()) text += ' ';
  text += base_name(place.file);
  if (place.line > 0) text += fmt::format(":{}", place.line);
  return text;
}

void TopModel::add_open(const std::vector<OpenCompile>& open,
                        const std::vector<TopProcess>& processes) {
  std::map<std::pair<pid_t, std::string>, Seen> now;
  state_.open.clear();
  const double time_s = state_.reading.details_time_s;
  for (const OpenCompile& compile : open) {
    std::pair key(compile.tid, compile.id);
    auto before = seen_.find(key);
    Seen seen{compile, time_s};
    if (before != seen_.end() && same_place(compile, before->second.at)) {
      seen.since_s = before->second.since_s;
      if (compile.moved) seen.at = before->second.at;
    }
    OpenRow row;
    row.compile = compile;
    row.still_s = std::max(0.0, time_s - seen.since_s);
    row.waits = wait_words(compile, open, processes);
    state_.open.push_back(std::move(row));
    now[std::move(key)] = std::move(seen);
  }
  seen_ = std::move(now);
  state_.stalls.clear();
  for (const OpenRow& row : state_.open)
    if (row.still_s >= kStallSeconds) state_.stalls.push_back(stall_sentence(row));
}

void TopModel::add_processes(std::vector<TopProcess> processes, double since_s) {
  const OpenRow* only = nullptr;  // the one compile that is open
  std::size_t compiling = 0;
  for (const OpenRow& row : state_.open) {
    if (row.compile.id.empty()) continue;
    only = &row;
    ++compiling;
  }
  std::map<pid_t, Spent> spent;
  state_.processes.clear();
  state_.children_cpu_percent = 0;
  state_.children_rss_bytes = 0;
  for (TopProcess& process : processes) {
    ProcessRow row;
    auto before = spent_.find(process.pid);
    if (before != spent_.end() && before->second.start_ticks == process.start_ticks && since_s > 0)
      row.cpu_percent = 100 * std::max(0.0, process.cpu_s - before->second.cpu_s) / since_s;
    spent[process.pid] = {process.start_ticks, process.cpu_s};
    for (const OpenRow& open : state_.open)
      if (open.compile.tid == process.started_by) row.compile = open.compile.id;
    if (row.compile.empty() && compiling == 1 && process.purpose == kCompiler)
      row.compile = only->compile.id;
    state_.children_cpu_percent += row.cpu_percent.value_or(0);
    state_.children_rss_bytes += process.rss_bytes;
    row.process = std::move(process);
    state_.processes.push_back(std::move(row));
  }
  spent_ = std::move(spent);
}

void TopModel::add(TopReading reading) {
  const TopReading& before = state_.reading;
  const double passed_s = first_ ? 0 : reading.time_s - before.time_s;
  const double details_s = first_ ? 0 : reading.details_time_s - before.details_time_s;
  if (passed_s > 0) {
    auto percent = [&](double now, double then) {
      return 100 * std::max(0.0, now - then) / passed_s;
    };
    state_.cpu_percent = percent(reading.target.cpu_s, before.target.cpu_s);
    state_.own_cpu_percent = percent(reading.own.cpu_s, before.own.cpu_s);
    state_.reads_per_s = static_cast<double>(reading.own.reads - before.own.reads) / passed_s;
  }
  const bool anew = first_ || details_s > 0;
  std::vector<OpenCompile> open = std::move(reading.open);
  std::vector<TopProcess> processes = std::move(reading.processes);
  state_.reading = std::move(reading);
  first_ = false;
  if (!anew) return;
  add_open(open, processes);
  add_processes(std::move(processes), details_s);
}

}  // namespace dynprof
