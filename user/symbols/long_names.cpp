#include "user/symbols/long_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/symbols/demangle.h"
#include "user/symbols/confined_process.h"

namespace dynprof {
namespace {

constexpr int kRequestFd = 3;
constexpr int kBadName = 10;
constexpr std::chrono::milliseconds kTime{2000};

}  // namespace

int run_name_helper() {
  if (!confine_self()) return kNotConfined;
  std::string name(kMaxMangledBytes, 0);
  const ssize_t got = ::read(kRequestFd, name.data(), name.size());
  name.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::string text = demangle_unbounded(name);
  // At most kMaxSymbolBytes, which a pipe takes whole.
  const bool wrote =
      ::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return wrote && !text.empty() ? 0 : kBadName;
}

struct LongNames::State {
  std::string program;
  std::mutex mutex;
  std::unordered_map<std::string, std::string> known;  // by mangled name
  int failures = 0;
};

LongNames::LongNames(std::string program) : state_(std::make_shared<State>()) {
  state_->program = std::move(program);
}

std::string LongNames::operator()(const std::string& mangled) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (const auto known = state_->known.find(mangled); known != state_->known.end())
    return known->second;
  if (state_->known.size() >= kMost || state_->failures >= kMostFailures) return {};
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<std::uint8_t> request(mangled.begin(), mangled.end());
  ConfinedLimits limits;
  limits.wall = kTime;
  limits.output_bytes = kMaxSymbolBytes;
  const ConfinedRun run = run_confined(state_->program, {"dynprof-bpf", kNameHelperVerb},
                                       nothing.get(), request, limits);
  std::string text;
  if (run.status == 0) text.assign(run.output.begin(), run.output.end());
  if (run.status != 0 && run.status != kBadName) ++state_->failures;
  return state_->known.emplace(mangled, std::move(text)).first->second;
}

}  // namespace dynprof
