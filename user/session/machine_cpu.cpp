#include "user/session/machine_cpu.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "symbolizer/base/text.h"
#include "user/target/clock.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t tick_ns() {
  const long ticks = ::sysconf(_SC_CLK_TCK);
  return ticks > 0 ? 1'000'000'000u / static_cast<std::uint64_t>(ticks) : 10'000'000;
}

std::uint64_t usage_ns(int who) {
  rusage usage = {};
  if (::getrusage(who, &usage) != 0) return 0;
  auto ns = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// "cpu  user nice system idle iowait irq softirq steal ...", in ticks.
bool read_stat(std::uint64_t& busy_ns, std::uint64_t& idle_ns, std::uint64_t& steal_ns) {
  std::string line;
  if (!std::getline(std::ifstream("/proc/stat"), line) || !line.starts_with("cpu ")) return false;
  std::array<std::uint64_t, 8> ticks{};
  const char* at = line.data() + 4;
  const char* end = line.data() + line.size();
  for (std::uint64_t& value : ticks) {
    while (at != end && *at == ' ') ++at;
    const auto [rest, problem] = std::from_chars(at, end, value);
    if (problem != std::errc()) return false;
    at = rest;
  }
  const std::uint64_t tick = tick_ns();
  idle_ns = (ticks[3] + ticks[4]) * tick;
  busy_ns = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) * tick;
  steal_ns = ticks[7] * tick;
  return true;
}

std::vector<pid_t> list_processes(std::size_t most) {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return pids;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (problem != std::errc() || end != name.data() + name.size() || pid <= 0) continue;
    pids.push_back(pid);
    if (pids.size() == most) break;
  }
  return pids;
}

std::uint64_t since(std::uint64_t now, std::uint64_t before) { return now - std::min(now, before); }

}  // namespace

MachineCpu::Reading MachineCpu::read() {
  Reading reading;
  reading.time_ns = monotonic_ns();
  reading.own_ns = usage_ns(RUSAGE_SELF) + usage_ns(RUSAGE_CHILDREN);
  reading.known = read_stat(reading.busy_ns, reading.idle_ns, reading.steal_ns);
  if (!reading.known) return reading;
  const std::uint64_t tick = tick_ns();
  for (pid_t pid : list_processes(kMaxProcesses)) {
    const auto stat = read_process_stat(pid);
    if (!stat) continue;
    reading.processes[pid] = {stat->comm, stat->parent, stat->start_ticks, stat->cpu_ticks * tick};
  }
  return reading;
}

std::string MachineCpu::end(const std::function<bool(pid_t)>& is_recorded) const {
  const Reading now = read();
  if (!now.known || !begin_.known) return {};
  const pid_t self = ::getpid();
  std::uint64_t own_ns = since(now.own_ns, begin_.own_ns), rest_ns = 0;
  std::vector<std::pair<std::string, std::uint64_t>> others;
  for (const auto& [pid, process] : now.processes) {
    if (pid == self || is_recorded(pid)) continue;
    const auto before = begin_.processes.find(pid);
    const bool same =
        before != begin_.processes.end() && before->second.start_ticks == process.start_ticks;
    const std::uint64_t used = since(process.cpu_ns, same ? before->second.cpu_ns : 0);
    if (used == 0) continue;
    if (process.parent == self)
      own_ns += used;
    else
      others.emplace_back(process.name, used);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Json list = Json::array();
  for (const auto& [name, ns] : others) {
    if (list.size() < kMaxListed)
      list.push_back({{"name", valid_utf8(name)}, {"cpu_ns", ns}});
    else
      rest_ns += ns;
  }
  const Json document = {{"cpus", ::sysconf(_SC_NPROCESSORS_ONLN)},
                         {"wall_ns", since(now.time_ns, begin_.time_ns)},
                         {"busy_ns", since(now.busy_ns, begin_.busy_ns)},
                         {"idle_ns", since(now.idle_ns, begin_.idle_ns)},
                         {"steal_ns", since(now.steal_ns, begin_.steal_ns)},
                         {"own_ns", own_ns},
                         {"others", std::move(list)},
                         {"others_left_out_ns", rest_ns}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dynprof
