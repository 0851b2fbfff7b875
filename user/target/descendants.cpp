#include "user/target/descendants.h"

#include <dirent.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <set>
#include <string_view>

#include "user/target/process.h"

namespace dynprof {
namespace {

void add_children(pid_t pid, pid_t tid, std::vector<pid_t>& children, std::size_t limit) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(fmt::format("/proc/{}/task/{}/children", pid, tid).c_str(), "re"), std::fclose);
  int child = 0;
  while (file && children.size() < limit && std::fscanf(file.get(), "%d", &child) == 1)
    children.push_back(child);
}

}  // namespace

std::vector<Descendant> find_descendants(const std::vector<pid_t>& roots, std::size_t limit) {
  std::vector<Descendant> found;
  std::set<pid_t> seen(roots.begin(), roots.end());
  std::vector<pid_t> todo = roots;
  for (std::size_t next = 0; next < todo.size() && found.size() < limit; next++) {
    auto threads = list_threads(todo[next]);
    if (!threads) continue;
    std::vector<pid_t> children;
    for (pid_t tid : *threads) add_children(todo[next], tid, children, limit);
    for (pid_t child : children) {
      if (found.size() >= limit || !seen.insert(child).second) continue;
      found.push_back({child, todo[next]});
      todo.push_back(child);
    }
  }
  return found;
}

std::vector<Descendant> find_all_processes(std::size_t limit) {
  std::vector<Descendant> found;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr) {
    std::string_view name = entry->d_name;
    pid_t pid = 0;
    auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc() || end != name.data() + name.size()) continue;
    auto stat = read_process_stat(pid);
    if (stat && !stat->zombie()) found.push_back({pid, stat->parent});
    if (found.size() == limit) break;
  }
  return found;
}

}  // namespace dynprof
