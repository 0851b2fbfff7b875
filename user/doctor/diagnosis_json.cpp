#include <nlohmann/json.hpp>

#include "symbolizer/base/text.h"
#include "user/doctor/diagnosis_output.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(backslash_escaped(text));
}

const char* recording_text(CheckState state) {
  return state == CheckState::kOk ? "full" : state == CheckState::kDegraded ? "degraded" : "none";
}

}  // namespace

Json to_json(const Diagnosis& diagnosis) {
  Json out;
  out["version"] = 1;
  out["system"] = backslash_escaped(diagnosis.system);
  out["pid"] = diagnosis.pid > 0 ? Json(diagnosis.pid) : Json(nullptr);
  out["recording"] = recording_text(verdict(diagnosis));
  out["checks"] = Json::array();
  for (const CheckGroup& group : diagnosis.groups) {
    for (const Check& check : group.checks) {
      out["checks"].push_back({{"group", group.name},
                               {"name", check.name},
                               {"state", state_text(check.state)},
                               {"finding", backslash_escaped(check.finding)},
                               {"consequence", text_or_null(check.consequence)},
                               {"fix", text_or_null(check.fix)}});
    }
  }
  return out;
}

}  // namespace dynprof
