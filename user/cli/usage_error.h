// What is wrong with the command line: exit code 2.
#pragma once

#include <string>
#include <utility>

#include "symbolizer/base/result.h"

namespace dynprof {

inline Error usage_error(std::string what, std::string hint) {
  Error e = error(std::move(what), std::move(hint));
  e.exit_code = 2;
  return e;
}

}  // namespace dynprof
