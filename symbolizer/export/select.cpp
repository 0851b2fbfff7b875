#include "symbolizer/export/select.h"

#include <set>
#include <string>

#include "symbolizer/base/text.h"

namespace dynprof {

Result<std::vector<CompileIndex>> find_compiles(const Attribution& attribution,
                                                std::string_view text) {
  std::string_view id = text;
  if (id.size() >= 2 && id.front() == '[' && id.back() == ']') id = id.substr(1, id.size() - 2);
  std::vector<CompileIndex> found;
  std::set<std::string> known;
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    std::string trace_id = compile.id.text();
    if (id == trace_id || id == trace_id + '_' + std::to_string(compile.attempt) ||
        id == attribution.file_stem(i) || id == attribution.label(i)) {
      found.push_back(i);
    }
    known.insert(std::move(trace_id));
  }
  if (!found.empty()) return found;
  std::string hint = known.empty() ? "the recording holds no compile" : "there is";
  std::size_t listed = 0;
  for (const std::string& trace_id : known) {
    if (++listed > 20) {
      hint += " … (" + std::to_string(known.size()) + " in all)";
      break;
    }
    hint += ' ' + trace_id;
  }
  return error("no compile " + escape_terminal(text), hint);
}

}  // namespace dynprof
