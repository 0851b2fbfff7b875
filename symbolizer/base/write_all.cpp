#include "symbolizer/base/write_all.h"

#include <unistd.h>

#include <cerrno>

namespace dynprof {

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      if (count == 0) errno = 0;
      return false;
    }
  }
  return true;
}

}  // namespace dynprof
