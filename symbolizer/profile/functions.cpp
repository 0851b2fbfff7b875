#include "symbolizer/profile/functions.h"

#include <fmt/format.h>

#include "symbolizer/base/hash.h"
#include "symbolizer/base/interner.h"

namespace dynprof {
namespace {

constexpr std::string_view kNoFile = "~";  // as cProfile writes builtins

bool same(const Function& a, const Function& b) {
  return a.first_line == b.first_line && a.name == b.name && a.file == b.file;
}

std::uint64_t hash_of(const Function& function, std::uint64_t seed) {
  std::uint64_t hash = hash_bytes(function.file, seed);
  hash = hash_bytes(function.name, seed ^ hash);
  return hash_u64(hash ^ static_cast<std::uint32_t>(function.first_line));
}

}  // namespace

Functions::Functions(const ResolvedFrames& frames) {
  const std::uint64_t seed = random_seed();
  IndexTable index;
  auto intern = [&](const Function& function) {
    std::uint64_t hash = hash_of(function, seed);
    std::uint32_t id =
        index.find(hash, [&](std::uint32_t other) { return same(functions_[other], function); });
    if (id != IndexTable::kNone) return id;
    id = static_cast<std::uint32_t>(functions_.size());
    functions_.push_back(function);
    index.add(hash, id, [&](std::uint32_t other) { return hash_of(functions_[other], seed); });
    return id;
  };

  intern(Function{FrameKind::kNative, kNoFile, 0, "<no stack>", "<no stack>", {}});
  of_frames_.reserve(frames.size());
  for (FrameId id = 0; id < frames.size(); ++id) {
    const ResolvedFrame& frame = frames[id];
    Function function{frame.kind, frame.file, frame.first_line, frame.name, frame.function, {}};
    if (frame.kind != FrameKind::kPython) {
      std::string_view symbol = frame.function;
      if (symbol.size() > 2 && symbol.front() == '<' && frame.unreadable != Unreadable::kNo) {
        symbol = symbol.substr(1, symbol.size() - 2);
      }
      names_.push_back(fmt::format("<{} in {}>", symbol, base_name(frame.file)));
      function = Function{frame.kind, kNoFile, 0, names_.back(), frame.function, frame.file};
    } else if (frame.unreadable != Unreadable::kNo) {
      function.file = kNoFile;
    }
    FunctionId known = intern(function);
    if (frame.kind != FrameKind::kPython && functions_[known].name.data() != names_.back().data()) {
      names_.pop_back();
    }
    of_frames_.push_back(known);
  }
}

}  // namespace dynprof
