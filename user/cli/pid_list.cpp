#include "user/cli/pid_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "user/cli/usage_error.h"

namespace dynprof {

Result<std::vector<std::int32_t>> parse_pids(const std::string& text) {
  std::vector<std::int32_t> pids;
  std::string_view rest = text;
  while (true) {
    std::string_view word = rest.substr(0, rest.find(','));
    std::int32_t pid = 0;
    auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), pid);
    if (failure != std::errc() || end != word.data() + word.size() || pid <= 0)
      return usage_error(fmt::format("'{}' is not a process id", word),
                         "for example --pid 4242, or --pid 4242,4243");
    if (std::find(pids.begin(), pids.end(), pid) == pids.end()) pids.push_back(pid);
    if (word.size() == rest.size()) break;
    rest.remove_prefix(word.size() + 1);
  }
  return pids;
}

Result<std::int32_t> one_pid(const std::string& text, const char* verb) {
  ASSIGN_OR_RETURN(auto pids, parse_pids(text));
  if (pids.size() != 1)
    return usage_error(fmt::format("{} reads one process", verb),
                       fmt::format("for example {} --pid 4242", verb));
  return pids.front();
}

}  // namespace dynprof
