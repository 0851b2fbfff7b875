// The two forms of a diagnosis. Text from the target is made safe for where it goes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "user/doctor/check.h"

namespace dynprof {

// One line for each check, the hint of those that are not ok below it (one for several
// in a row that share it), and the verdict at the end.
std::string diagnosis_text(const Diagnosis& diagnosis);

// docs/reference/json-outputs.md has the shape.
nlohmann::ordered_json to_json(const Diagnosis& diagnosis);

}  // namespace dynprof
