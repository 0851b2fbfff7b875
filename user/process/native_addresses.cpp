#include "user/process/native_addresses.h"

#include <fmt/format.h>

#include <utility>

#include "symbolizer/base/text.h"

namespace dynprof {

void NativeAddresses::set_space(NativeSpaceRef space) {
  space_ = std::move(space);
  mappings_.set_kept(space_);
}

bool NativeAddresses::knows_eval_loop() {
  if (!python_) return false;
  if (!eval_ranges_) {
    auto found = EvalRanges::find(pid_, python_.runtime().image_path);
    if (!found) told_stripped_ = true;  // the process has ended: symbols are not what is missing
    eval_ranges_ = std::move(found).value_or(EvalRanges());
    // Addresses looked up before Python was found were taken for other code.
    known_.clear();
  }
  return !eval_ranges_->empty();
}

NativeAddress NativeAddresses::find(std::uint64_t word, NativeFrames& frames,
                                    std::uint64_t now_ns) {
  constexpr std::size_t kMaxAddresses = 1 << 20;
  const std::uint32_t version = space_ ? space_->version.load(std::memory_order_acquire) : 0;
  if (version != version_ || known_.size() >= kMaxAddresses) {
    // Another file may be mapped there now.
    known_.clear();
    mappings_.forget();
    version_ = version;
  }
  const bool knows_loop = knows_eval_loop();
  auto [at, added] = known_.try_emplace(word);
  if (added) {
    // A return address may lie behind the function that made the call.
    const std::uint64_t address = (word & DP_NATIVE_EXACT) ? word & ~DP_NATIVE_EXACT : word - 1;
    at->second.frame = frames.user_frame(pid_, mappings_, address, now_ns);
    at->second.in_eval_loop = knows_loop && eval_ranges_->contains(address);
  }
  return at->second;
}

void NativeAddresses::inherit(const NativeAddresses& parent) {
  set_space(parent.space_);
  eval_ranges_ = parent.eval_ranges_;
}

void NativeAddresses::forget() {
  mappings_.forget();
  set_space(nullptr);
  known_.clear();
  eval_ranges_.reset();
}

std::string NativeAddresses::take_problem() {
  if (!eval_ranges_ || !eval_ranges_->empty() || std::exchange(told_stripped_, true)) return {};
  return fmt::format(
      "{} has no symbol for the interpreter's loop: native frames are shown beside Python frames, "
      "not among them",
      escape_terminal(python_ ? python_.runtime().image_path : "the interpreter"));
}

}  // namespace dynprof
