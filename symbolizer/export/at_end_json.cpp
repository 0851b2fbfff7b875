#include "symbolizer/export/at_end_json.h"

#include <algorithm>
#include <cmath>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

Json seconds(std::uint64_t ns) { return std::round(static_cast<double>(ns) / 1e3) / 1e6; }

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

template <class Number>
Json number_or_null(Number number) {
  return number > 0 ? Json(number) : Json(nullptr);
}

}  // namespace

Json at_end_json(const std::vector<StillOpen>& all, CompileIndex compile) {
  const auto open = std::find_if(all.begin(), all.end(),
                                 [&](const StillOpen& one) { return one.compile == compile; });
  if (open == all.end()) return nullptr;
  return {{"age_s", seconds(open->age_ns)},
          {"age_is_least", open->least},
          {"process_ended", open->process_ended},
          {"phase", text_or_null(open->phase)},
          {"activity", open->file.empty() ? Json(nullptr) : Json(line_use_text(open->use))},
          {"file", text_or_null(open->file)},
          {"line", number_or_null(open->line)},
          {"function", text_or_null(open->function)},
          {"node", number_or_null(open->node)},
          {"nodes", number_or_null(open->nodes)},
          {"waits_for", text_or_null(open->wait)},
          {"waited_s", open->wait.empty() ? Json(nullptr) : seconds(open->wait_ns)}};
}

}  // namespace dynprof
