#include "symbolizer/attribution/resolved.h"

#include <unordered_map>

#include "symbolizer/python/line_table.h"

namespace dynprof {
namespace {

// Lines of the code units of one code object. Recordings hold many frames of the same code: long
// tables are decoded once, short ones searched each time.
class Lines {
 public:
  explicit Lines(const Tables& tables) : tables_(tables) {}

  std::int32_t at(CodeId id, std::int32_t unit) {
    const Code& code = tables_.codes[id];
    std::string_view table = tables_.blobs[code.line_table];
    if (table.empty() || unit < 0) return code.first_line;
    if (table.size() < kLongTable) {
      return line_of_unit(code.python, table, code.first_line, unit);
    }
    auto [it, added] = decoded_.try_emplace(id);
    if (added) it->second = decode_line_table(code.python, table, code.first_line);
    return search(it->second, static_cast<std::uint32_t>(unit));
  }

 private:
  static constexpr std::size_t kLongTable = 4096;  // bytes

  static std::int32_t search(const std::vector<LineRange>& ranges, std::uint32_t unit) {
    std::size_t low = 0, high = ranges.size();
    while (low < high) {
      std::size_t middle = (low + high) / 2;
      if (ranges[middle].end <= unit) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < ranges.size() && ranges[low].begin <= unit ? ranges[low].line : 0;
  }

  const Tables& tables_;
  std::unordered_map<CodeId, std::vector<LineRange>> decoded_;
};

std::int32_t bounded_line(std::uint32_t line) {
  return line > INT32_MAX ? 0 : static_cast<std::int32_t>(line);
}

}  // namespace

ResolvedFrames::ResolvedFrames(const Tables& tables, const std::vector<GeneratedCopy>& copies) {
  for (std::size_t reason = 0; reason < kReasons; ++reason) {
    made_[reason] = unreadable_text(static_cast<Unreadable>(reason));
  }
  auto made = [this](Unreadable reason) -> std::string_view {
    auto index = static_cast<std::size_t>(reason);
    return made_[index < kReasons ? index : static_cast<std::size_t>(Unreadable::kFault)];
  };

  Lines lines(tables);
  frames_.reserve(tables.frames.size());
  for (const Frame& frame : tables.frames) {
    ResolvedFrame resolved;
    resolved.kind = frame.kind;
    if (frame.kind == FrameKind::kPython) {
      const Code& code = tables.codes[frame.code];
      resolved.unreadable = code.unreadable;
      if (code.unreadable != Unreadable::kNo) {
        resolved.function = resolved.name = made(code.unreadable);
      } else {
        resolved.name = tables.strings[code.name];
        resolved.function = tables.strings[code.qualname];
        if (resolved.function.empty()) resolved.function = resolved.name;
        resolved.file = tables.strings[code.filename];
        resolved.first_line = code.first_line;
        resolved.line = lines.at(frame.code, frame.unit);
      }
    } else {
      resolved.file = tables.strings[frame.object];
      resolved.function = resolved.name = tables.strings[frame.symbol];
      resolved.source_file = tables.strings[frame.source_file];
      resolved.inlined = frame.inlined;
      resolved.first_line = bounded_line(frame.declared_line);
      resolved.line = bounded_line(frame.source_line);
      if (resolved.function.empty()) {
        resolved.unreadable = Unreadable::kNoSymbol;
        resolved.function = resolved.name = made(Unreadable::kNoSymbol);
      }
    }
    frames_.push_back(resolved);
  }
  name_copies(copies);
}

// A wrapper's origin is its path, an FX source's begins like the file name its code objects have
// ("<eval_with_key>.3 from proxy_tensor.py:1738 in wrapped").
void ResolvedFrames::name_copies(const std::vector<GeneratedCopy>& copies) {
  constexpr std::string_view kEvalKey = "<eval_with_key>";
  auto key = [&](std::string_view name) {
    return name.starts_with(kEvalKey) ? name.substr(0, name.find(' ')) : name;
  };
  std::unordered_map<std::string_view, std::string_view> paths;
  for (const GeneratedCopy& copy : copies) {
    bool is_file = copy.origin.starts_with('/') || copy.origin.starts_with(kEvalKey);
    // Lines of anything else than Python are not those of a Python frame.
    if (!is_file || !copy.name.ends_with(".py")) continue;
    if (paths.contains(key(copy.origin))) continue;
    paths.emplace(key(copy.origin), paths_.emplace_back(copy.path()));
  }
  if (paths.empty()) return;
  for (ResolvedFrame& frame : frames_) {
    if (frame.kind != FrameKind::kPython || frame.unreadable != Unreadable::kNo) continue;
    auto found = paths.find(key(frame.file));
    if (found == paths.end()) continue;
    frame.file = found->second;
    frame.generated = true;
  }
}

}  // namespace dynprof
