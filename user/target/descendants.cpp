#include "user/target/descendants.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <set>

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

}  // namespace dynprof
