// A way to read memory of other processes that does not take the lock of their memory map, where there is one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>

namespace dynprof {

struct RemoteRange;

class InPlaceReader {
 public:
  InPlaceReader() = default;
  InPlaceReader(const InPlaceReader&) = delete;
  InPlaceReader& operator=(const InPlaceReader&) = delete;
  virtual ~InPlaceReader() = default;

  // Reads those ranges whose pages are all present; the others are left as they are. From any thread.
  virtual void read(pid_t pid, std::span<RemoteRange> ranges) = 0;

  // What ProcessMemory tries first from now on; null: nothing.
  static void install(std::shared_ptr<InPlaceReader> reader);
  static std::shared_ptr<InPlaceReader> installed();
};

}  // namespace dynprof
