#include "user/cli/end_stuck.h"

#include <unistd.h>

#include "symbolizer/base/result.h"
#include "user/cli/terminal.h"

namespace dynprof {

void end_stuck(const std::string& sentence) {
  const Error stuck = error(sentence, "ask for another process, or again later");
  print_error(stuck);
  ::_exit(stuck.exit_code);
}

}  // namespace dynprof
