#include "user/top/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/base/text.h"
#include "symbolizer/base/unique_fd.h"
#include "user/target/clock.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxFile = 16'384;

// Programs that a compiler is made of.
constexpr std::array<std::string_view, 20> kCompilers = {
    "g++",  "gcc",      "c++",   "cc",        "cc1plus",  "cc1",     "as",
    "ld",   "collect2", "clang", "clang++",   "ld.lld",   "ld.gold", "ld.bfd",
    "nvcc", "cicc",     "ptxas", "fatbinary", "cudafe++", "nvlink"};

std::string read_small(const std::string& path) {
  std::string text;
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  while (fd && text.size() < kMaxFile) {
    const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return text;
}

double ticks_s(std::uint64_t ticks) {
  static const long per_second = std::max(1L, sysconf(_SC_CLK_TCK));
  return static_cast<double>(ticks) / static_cast<double>(per_second);
}

double since_boot_s() { return static_cast<double>(clock_ns(CLOCK_BOOTTIME)) * 1e-9; }

double age_s(std::uint64_t start_ticks) {
  return std::max(0.0, since_boot_s() - ticks_s(start_ticks));
}

template <class T>
bool number_of(std::string_view field, T& value) {
  auto [end, failure] = std::from_chars(field.data(), field.data() + field.size(), value);
  return failure == std::errc() && end == field.data() + field.size();
}

// The numbers in a file, parted by blanks.
std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> pids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    pid_t pid = 0;
    auto [rest, failure] = std::from_chars(at, end, pid);
    if (failure == std::errc() && pid > 0) pids.push_back(pid);
    at = std::max(rest, at + 1);
  }
  return pids;
}

// "x86_64-linux-gnu-g++-12" is g++.
std::string_view program_of(std::string_view path) {
  std::string_view name = base_name(path);
  std::size_t dash = name.rfind('-');
  if (dash != std::string_view::npos && dash + 1 < name.size() &&
      name.find_first_not_of("0123456789.", dash + 1) == std::string_view::npos) {
    name = name.substr(0, dash);
    dash = name.rfind('-');
  }
  if (dash != std::string_view::npos && name.find("gnu-") != std::string_view::npos)
    name = name.substr(dash + 1);
  return name;
}

bool is_compiler(std::string_view name) {
  return std::find(kCompilers.begin(), kCompilers.end(), name) != kCompilers.end();
}

}  // namespace

std::optional<ProcessTimes> parse_process_times(std::string_view stat) {
  // "pid (comm) S ppid ...": comm may hold anything, ')' included, so cut at the last one.
  const std::size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  ProcessTimes times;
  times.comm = stat.substr(open + 1, close - open - 1);
  std::array<std::string_view, 22> fields;  // fields[0] is field 3 of proc(5)
  std::size_t count = 0;
  std::string_view rest = stat.substr(close + 1);
  while (count < fields.size()) {
    const std::size_t begin = rest.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    rest.remove_prefix(begin);
    const std::size_t size = std::min(rest.find_first_of(" \n"), rest.size());
    fields[count++] = rest.substr(0, size);
    rest.remove_prefix(size);
  }
  std::uint64_t user = 0, system = 0, pages = 0;
  if (count < fields.size() || fields[0].empty() || !number_of(fields[1], times.parent) ||
      !number_of(fields[11], user) || !number_of(fields[12], system) ||
      !number_of(fields[17], times.threads) || !number_of(fields[19], times.start_ticks) ||
      !number_of(fields[21], pages))
    return std::nullopt;
  times.state = fields[0][0];
  times.cpu_s = ticks_s(user) + ticks_s(system);
  static const auto page_bytes = static_cast<std::uint64_t>(std::max(1L, sysconf(_SC_PAGESIZE)));
  times.rss_bytes = std::min<std::uint64_t>(pages, UINT64_MAX / page_bytes) * page_bytes;
  return times;
}

std::string process_purpose(std::string_view arguments, std::string_view comm) {
  if (worker_parent(arguments) != 0) return "compile worker";
  auto words = split_arguments(arguments);
  const std::string_view program = program_of(words.empty() ? comm : words.front());
  if (is_compiler(program) || is_compiler(comm)) return "compiler";
  if (comm.starts_with("pt_data_worker")) return "DataLoader worker";
  if (arguments.find("resource_tracker") != std::string_view::npos) return "resource tracker";
  if (arguments.find("multiprocessing.spawn") != std::string_view::npos ||
      arguments.find("multiprocessing.forkserver") != std::string_view::npos)
    return "multiprocessing";
  return program.starts_with("python") ? "Python" : "";
}

bool TopProcesses::read_target(TopTarget& target) {
  auto times = parse_process_times(read_small(fmt::format("/proc/{}/stat", pid_)));
  if (!times || times->state == 'Z' || times->state == 'X') return false;
  if (start_ticks_ != 0 && times->start_ticks != start_ticks_) return false;
  start_ticks_ = times->start_ticks;
  target.pid = pid_;
  target.state = times->state;
  target.threads = times->threads;
  target.cpu_s = times->cpu_s;
  target.uptime_s = age_s(times->start_ticks);
  target.rss_bytes = times->rss_bytes;
  if (auto peak = read_status_field(pid_, "VmHWM")) {
    std::uint64_t kib = 0;
    const std::size_t digit = peak->find_first_of("0123456789");
    if (digit != std::string::npos)
      (void)std::from_chars(peak->data() + digit, peak->data() + peak->size(), kib);
    target.peak_bytes = std::min<std::uint64_t>(kib, UINT64_MAX / 1024) * 1024;
  }
  return true;
}

const TopProcesses::Command& TopProcesses::command_of(pid_t pid, const ProcessTimes& times) {
  Command& command = commands_[pid];
  if (command.start_ticks == times.start_ticks && command.comm == times.comm) return command;
  const std::string arguments = read_arguments(pid);
  command = {times.start_ticks, times.comm, command_title(arguments, "", times.comm),
             process_purpose(arguments, times.comm)};
  return command;
}

std::vector<TopProcess> TopProcesses::read_children(std::size_t& left_out) {
  std::vector<TopProcess> found;
  std::set<pid_t> seen = {pid_};
  std::vector<pid_t> todo = {pid_};
  std::size_t threads_left = kMaxThreads;
  left_out = 0;
  for (std::size_t next = 0; next < todo.size(); ++next) {
    auto threads = list_threads(todo[next]);
    if (!threads) continue;
    if (threads->size() > threads_left) threads->resize(threads_left);
    threads_left -= threads->size();
    for (pid_t tid : *threads) {
      for (pid_t pid :
           pids_in(read_small(fmt::format("/proc/{}/task/{}/children", todo[next], tid)))) {
        if (!seen.insert(pid).second) continue;
        if (found.size() == kMaxProcesses) {
          ++left_out;
          continue;
        }
        auto times = parse_process_times(read_small(fmt::format("/proc/{}/stat", pid)));
        if (!times || times->state == 'Z' || times->state == 'X') continue;
        const Command& command = command_of(pid, *times);
        found.push_back({pid, todo[next], tid, times->start_ticks, command.title, command.purpose,
                         times->state, times->cpu_s, age_s(times->start_ticks), times->rss_bytes});
        todo.push_back(pid);
      }
    }
  }
  std::erase_if(commands_, [&](const auto& known) { return !seen.contains(known.first); });
  return found;
}

}  // namespace dynprof
