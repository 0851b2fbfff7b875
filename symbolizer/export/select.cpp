#include "symbolizer/export/select.h"

#include <algorithm>
#include <string>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kListed = 20;

}  // namespace

Result<std::vector<CompileIndex>> find_compiles(const Attribution& attribution,
                                                std::string_view text) {
  std::string_view id = text;
  if (id.size() >= 2 && id.front() == '[' && id.back() == ']') id = id.substr(1, id.size() - 2);
  const bool is_frame =
      !id.empty() && id.size() <= 9 &&
      std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
  std::vector<CompileIndex> found, attempts;
  std::vector<std::string> known;
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    std::string trace_id = compile.id.text();
    std::string label = attribution.label(i);
    if (id == trace_id || id == trace_id + '_' + std::to_string(compile.attempt) ||
        id == attribution.file_stem(i) || id == label ||
        (is_frame && id == std::to_string(compile.id.frame))) {
      found.push_back(i);
    }
    // "backward 0/0" where there is only "backward 0/0_1".
    const std::size_t end = label.rfind(trace_id);
    if (end != std::string::npos && id == std::string_view(label).substr(0, end + trace_id.size()))
      attempts.push_back(i);
    known.push_back(std::move(label));
  }
  if (found.empty()) found = std::move(attempts);
  if (!found.empty()) return found;
  std::string hint = known.empty() ? "the recording holds no compile" : "there is";
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (i == kListed) {
      hint += " … (" + std::to_string(known.size()) + " in all)";
      break;
    }
    hint += (i == 0 ? " " : ", ") + escape_terminal(known[i]);
  }
  return error("no compile " + escape_terminal(text), hint);
}

}  // namespace dynprof
