#include "user/live/stack_reader.h"

#include <algorithm>
#include <thread>

#include "user/target/process.h"

namespace dynprof {
namespace {

// Equal readings in a row until a stack is accepted, and until a doubtful one is.
constexpr int kEqual = 3;
constexpr int kEqualInDoubt = 50;
constexpr auto kPauseInDoubt = std::chrono::microseconds(100);
constexpr std::size_t kMaxCodes = 65'536;
// co_flags of generators, coroutines and asynchronous generators.
constexpr std::uint32_t kGeneratorFlags = 0x20 | 0x80 | 0x200;

bool sleeps(pid_t tid) {
  auto stat = read_process_stat(tid);
  return stat && stat->state != 'R';
}

}  // namespace

bool same_calls(const RemoteStack& a, const RemoteStack& b, std::size_t frames_from_root) {
  std::size_t count = frames_from_root;
  if (a.frames.size() < count || b.frames.size() < count) return false;
  for (std::size_t i = 1; i <= count; ++i) {
    const StackFrame& left = a.frames[a.frames.size() - i];
    StackFrame right = b.frames[b.frames.size() - i];
    // A leaf moves on from instruction to instruction.
    bool leaf = i == a.frames.size() || i == b.frames.size();
    if (leaf) right.at.unit = left.at.unit;
    if (left != right) return false;
  }
  return a.truncated == b.truncated;
}

StackReader::StackReader(RemoteMemory& memory, const PythonRuntime& runtime)
    : pages_(memory), objects_(pages_, runtime.layout), codes_(objects_, runtime.code_type) {
  objects_.set_str_type(runtime.str_type);
}

std::optional<RemoteStack> StackReader::walk(std::uint64_t tstate, const RemoteStack& then) {
  RemoteStack stack;
  auto frames = walk_frames(objects_, tstate, DP_MAX_PYTHON_FRAMES + 1, &stack.cut_off);
  if (!frames) return std::nullopt;
  stack.truncated = frames->size() > DP_MAX_PYTHON_FRAMES;
  if (stack.truncated) frames->pop_back();
  stack.frames.resize(frames->size());
  for (std::size_t i = 1; i <= frames->size(); ++i) {  // from the root, where stacks are alike
    StackFrame& frame = stack.frames[stack.frames.size() - i];
    frame.at = (*frames)[frames->size() - i];
    const StackFrame* before =
        i <= then.frames.size() ? &then.frames[then.frames.size() - i] : nullptr;
    const bool stood = before && before->at.frame == frame.at.frame &&
                       before->at.code == frame.at.code && before->identity;
    frame.identity = stood ? before->identity : codes_.identity_of(frame.at.code);
  }
  return stack;
}

bool StackReader::in_doubt(const RemoteStack& stack) {
  if (stack.cut_off) return true;
  for (const StackFrame& frame : stack.frames) {
    if (!frame.identity) return true;
  }
  if (stack.truncated) return false;
  if (stack.frames.empty()) return true;
  const PythonLayout& t = objects_.layout();
  auto flags = objects_.memory().read<std::uint32_t>(stack.frames.back().at.code + t.code_flags);
  return !flags || (*flags & kGeneratorFlags) != 0;
}

bool StackReader::read(pid_t tid, std::uint64_t tstate, Deadline deadline, RemoteStack& stack) {
  pages_.clear();
  stack = {};
  int equal = 0;        // readings in a row like `stack`; 0: the last one was torn
  bool asleep = false;  // before the reading
  for (bool first = true;; first = false) {
    auto now = again(tstate);
    bool same = equal > 0 && now && now->frames.size() == stack.frames.size() &&
                same_calls(stack, *now, now->frames.size());
    equal = same ? equal + 1 : now ? 1 : 0;
    if (now) stack = std::move(*now);
    if (equal >= kEqual) {
      if (equal >= kEqualInDoubt || !in_doubt(stack)) return true;
      bool slept = asleep;
      asleep = sleeps(tid);
      if (slept && asleep) return true;
      std::this_thread::sleep_for(kPauseInDoubt);
    }
    if (!same && !first && std::chrono::steady_clock::now() > deadline) return false;
  }
}

std::optional<RemoteStack> StackReader::again(std::uint64_t tstate) { return again(tstate, {}); }

std::optional<RemoteStack> StackReader::again(std::uint64_t tstate, const RemoteStack& then) {
  pages_.renew();
  return walk(tstate, then);
}

void CodeNames::read(const RemoteStack& stack) {
  std::vector<CodeRequest> requests;
  for (const StackFrame& frame : stack.frames) {
    if (!frame.identity || codes_.size() + requests.size() >= kMaxCodes) continue;
    if (codes_.contains({frame.at.code, *frame.identity})) continue;
    bool asked = std::any_of(requests.begin(), requests.end(), [&](const CodeRequest& request) {
      return request.address == frame.at.code && request.identity == frame.identity;
    });
    if (!asked) requests.push_back({frame.at.code, frame.identity});
  }
  std::vector<RemoteCode> codes = reader_.read_many(requests);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes_[{requests[i].address, requests[i].identity.value_or(0)}] = std::move(codes[i]);
  }
}

const RemoteCode& CodeNames::of(const StackFrame& frame) const {
  static const RemoteCode kUnreadable = [] {
    RemoteCode code;
    code.unreadable = Unreadable::kFault;
    return code;
  }();
  if (!frame.identity) return kUnreadable;
  auto found = codes_.find({frame.at.code, *frame.identity});
  return found == codes_.end() ? kUnreadable : found->second;
}

std::optional<std::uint16_t> CodeNames::slot(const StackFrame& frame, std::string_view name) {
  if (!frame.identity) return std::nullopt;
  Key key{frame.at.code, *frame.identity};
  auto found = locals_.find(key);
  if (found == locals_.end()) {
    auto locals = reader_.read_locals(frame.at.code);
    // The names are those of the object we mean only if it is still there.
    if (reader_.identity_of(frame.at.code) != frame.identity) locals.reset();
    found = locals_.emplace(key, std::move(locals)).first;
  }
  if (!found->second) return std::nullopt;
  const std::vector<LocalName>& locals = *found->second;
  // A cell or free variable takes precedence over an argument of the same name (3.10).
  for (std::size_t i = locals.size(); i-- > 0;) {
    if (locals[i].name == name && i < DP_NO_OFFSET) return static_cast<std::uint16_t>(i);
  }
  return std::nullopt;
}

}  // namespace dynprof
