#include "user/target/descriptor_limit.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // what we had will have to do
}

bool out_of_descriptors() {
  const UniqueFd probe(::open("/", O_PATH | O_CLOEXEC));
  return !probe && (errno == EMFILE || errno == ENFILE);
}

}  // namespace dynprof
