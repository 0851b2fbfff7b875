// Loads every BPF object of the build into this kernel and compares, for each program, how many
// instructions the verifier walked with a budget: `bpf_load BUDGET_FILE`. Exit 77: not permitted here.
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bpf/events.h"
#include "direct_map.skel.h"
#include "gpu.skel.h"
#include "offcpu.skel.h"
#include "offcpu_plain.skel.h"
#include "pid_level.skel.h"
#include "process.skel.h"
#include "remote_memory.skel.h"
#include "sampler.skel.h"
#include "sampler_plain.skel.h"
#include "uprobes.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/kernel/direct_map.h"
#include "user/preflight/capabilities.h"
#include "watchpoints.skel.h"

namespace {

constexpr std::size_t kLogBytes = 1 << 16;
constexpr unsigned kStatsOnly = 4;  // BPF_LOG_STATS of <linux/bpf_verifier.h>, not in its uapi part

struct Loaded {
  std::string program;
  std::uint64_t verified = 0;  // instructions walked by the verifier
};

// As on a kernel whose memory can be read in place; elsewhere as without.
template <class S>
void with_direct_map(S* skeleton) {
  dynprof::set_direct_map(skeleton->rodata, dynprof::find_direct_map());
}

template <class S>
bool load(
    std::vector<Loaded>& results, void (*prepare)(S*) = [](S*) {}) {
  auto opened = dynprof::open_object<S>("tested");
  if (!opened) {
    fmt::print(stderr, "{}\n", opened.error().what);
    return false;
  }
  const dynprof::Skeleton<S>& skeleton = *opened;
  prepare(skeleton.get());
  std::map<std::string, std::vector<char>> logs;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    std::vector<char>& log = logs[bpf_program__name(program)];
    log.resize(kLogBytes);
    bpf_program__set_log_buf(program, log.data(), log.size());
    bpf_program__set_log_level(program, kStatsOnly);
  }
  const auto loading = dynprof::load_object("tested", *skeleton);
  for (auto& [name, log] : logs) {
    Loaded loaded{name, 0};
    // Linux 7.2 has such a line for each part of a program, and one for all of it at the end.
    const std::string_view said(log.data());
    if (const std::size_t at = said.rfind("processed "); at != said.npos)
      loaded.verified = std::strtoull(log.data() + at + std::strlen("processed "), nullptr, 10);
    if (!loading) fmt::print(stderr, "{}:\n{}\n", name, log.data());
    results.push_back(loaded);
  }
  if (!loading) fmt::print(stderr, "{}\n", loading.error().what);
  return loading.has_value();
}

std::map<std::string, std::uint64_t> read_budget(const char* path) {
  std::map<std::string, std::uint64_t> budget;
  std::ifstream file(path);
  std::string line, name;
  std::uint64_t limit = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    if (!line.empty() && line[0] != '#' && words >> name >> limit) budget[name] = limit;
  }
  return budget;
}

// Linux 6.2 and later. Without it the search for the direct map is refused, and recordings go without.
bool has_rdonly_cast() {
  const std::unique_ptr<btf, decltype(&btf__free)> kernel(btf__load_vmlinux_btf(), btf__free);
  return kernel && btf__find_by_name_kind(kernel.get(), "bpf_rdonly_cast", BTF_KIND_FUNC) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bpf_load BUDGET_FILE\n");
    return 2;
  }
  if (auto allowed = dynprof::check_may_record("make check-load"); !allowed) {
    fmt::print("{}\n", allowed.error().what);
    return 77;
  }
  auto budget = read_budget(argv[1]);
  std::vector<Loaded> results;
  int failed = 0;
  if (!load<sampler_bpf>(results)) failed++;
  if (!load<sampler_bpf>(results, with_direct_map)) failed++;
  if (!load<process_bpf>(results)) failed++;
  if (!load<watchpoints_bpf>(results)) failed++;
  if (!load<uprobes_bpf>(results)) failed++;
  if (!load<gpu_bpf>(results)) failed++;
  if (!load<pid_level_bpf>(results)) failed++;
  const bool direct_map = has_rdonly_cast();
  if (direct_map && !load<direct_map_bpf>(results)) failed++;
  if (direct_map && !load<remote_memory_bpf>(results, with_direct_map)) failed++;
  if (!load<offcpu_bpf>(results)) failed++;
  if (!load<offcpu_bpf>(results, with_direct_map)) failed++;
  if (!load<sampler_plain_bpf>(results)) failed++;
  if (!load<offcpu_plain_bpf>(results)) failed++;
  // As on a kernel whose scheduler does not tell delays.
  auto without = [](offcpu_bpf* skeleton) { skeleton->rodata->scheduler_keeps_delays = false; };
  if (!load<offcpu_bpf>(results, without)) failed++;
  int passed = 0;
  for (const Loaded& loaded : results) {
    auto limit = budget.find(loaded.program);
    const bool good =
        limit != budget.end() && loaded.verified > 0 && loaded.verified <= limit->second;
    fmt::print("{:<16} {:>8} verified instructions, budget {}{}\n", loaded.program, loaded.verified,
               limit == budget.end() ? "missing" : std::to_string(limit->second),
               good ? "" : "  FAILED");
    (good ? passed : failed)++;
  }
  for (const auto& [name, limit] : budget) {
    if (std::any_of(results.begin(), results.end(),
                    [&](const Loaded& loaded) { return loaded.program == name; }))
      continue;
    const bool reads_in_place =
        name == "find_direct_map" || name == "find_task" || name == "read_remote";
    if (!direct_map && reads_in_place) {
      fmt::print("{}: not loaded, this kernel has no bpf_rdonly_cast\n", name);
      continue;
    }
    fmt::print("{}: in the budget, but there is no such program  FAILED\n", name);
    failed++;
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed ? 1 : 0;
}
