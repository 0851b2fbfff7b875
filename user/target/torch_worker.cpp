#include "user/target/torch_worker.h"

#include "symbolizer/base/text.h"
#include "user/target/process.h"

namespace dynprof {

Purpose read_purpose(pid_t pid) {
  return purpose_of(read_arguments(pid), base_name(read_exe(pid)));
}

}  // namespace dynprof
