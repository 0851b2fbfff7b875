#include "user/functions/function_writer.h"

#include "symbolizer/report/user_frames.h"

namespace dynprof {

StringId FunctionWriter::string(std::string_view text) {
  if (text.empty()) return 0;
  texts_.emplace_back(text);
  return static_cast<StringId>(texts_.size());
}

CodeId FunctionWriter::code(const Code& code) {
  auto text = [this](StringId id) {
    return id == 0 || id > texts_.size() ? std::string() : texts_[id - 1];
  };
  TopPlace place;
  place.function = code.unreadable == Unreadable::kNo
                       ? text(code.qualname)
                       : std::string(unreadable_text(code.unreadable));
  place.file = text(code.filename);
  place.line = code.first_line;
  return times_.function(place, is_user_file(place.file, user_packages_));
}

FrameId FunctionWriter::frame(const Frame& frame) {
  return frame.kind == FrameKind::kPython ? frame.code : FunctionTimes::kUnknown;
}

StackId FunctionWriter::stack(const StackNode& node) {
  if (node.frame == FunctionTimes::kUnknown) return node.caller;
  const std::uint64_t key = std::uint64_t{node.caller} << 32 | node.frame;
  const auto next = static_cast<StackId>(first_stack_ + stacks_.size());
  const auto [at, added] = stack_ids_.try_emplace(key, next);
  if (added) stacks_.push_back({node.caller, node.frame});
  return at->second;
}

std::vector<FunctionTimes::Id> FunctionWriter::functions(StackId stack) const {
  std::vector<FunctionTimes::Id> found;
  // Callers have smaller numbers.
  while (stack >= first_stack_ && stack - first_stack_ < stacks_.size()) {
    const Node& node = stacks_[stack - first_stack_];
    found.push_back(node.function);
    stack = node.caller;
  }
  return found;
}

void FunctionWriter::bound_memory() {
  texts_.clear();
  if (stacks_.size() < kMaxStacks) return;
  first_stack_ += static_cast<StackId>(stacks_.size());
  stacks_.clear();
  stack_ids_.clear();
}

void FunctionWriter::keep(const Wait& wait) {
  // The kinds that are no wait; and the part at its end when it could have run.
  if (wait.kind == WaitKind::kNone || wait.kind == WaitKind::kPreempted || wait.stack == 0) return;
  FunctionTimes::Stretch stretch;
  stretch.use = FunctionTimes::Use::kWait;
  stretch.begin_ns = wait.begin_ns;
  stretch.end_ns = wait.end_ns();
  stretch.length_ns = wait.length_ns - wait.runnable_ns;
  stretch.stack = functions(wait.stack);
  if ((wait.flags & kWaitAtEnd) != 0)
    open_.push_back(std::move(stretch));
  else
    times_.add(stretch);
}

}  // namespace dynprof
