// Loads libdynprof_cupti.so into a CPython, as `record --gpu on` does, and prints how it went as JSON.
//   load_library PID LIBRARY [MILLISECONDS [in-place]]
// MILLISECONDS: how long the main thread has to come to a safe point. in-place: memory is read by BPF programs where
// the kernel allows it, as `record` does, so that nothing waits for the lock of the target's memory map while it is stopped.
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "symbolizer/base/text.h"
#include "user/inject/load_library.h"
#include "user/kernel/direct_map.h"
#include "user/kernel/pid_namespace.h"
#include "user/kernel/remote_pages.h"
#include "user/target/in_place_reader.h"
#include "user/target/reading_process.h"

namespace {

void read_in_place() {
  using namespace dynprof;
  const DirectMap map = find_direct_map();
  const auto ours = find_pid_namespace();
  if (map.base == 0 || !ours) return;
  if (auto reader = open_remote_pages(map, *ours)) InPlaceReader::install(std::move(*reader));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace dynprof;
  if (argc < 3) return 2;
  ReadingProcess::of_program().prepare();
  if (argc > 4) read_in_place();
  LoadLimits limits;
  if (argc > 3) limits.safe_point = std::chrono::milliseconds(std::atoi(argv[3]));
  const auto loaded = load_into_python(std::atoi(argv[1]), argv[2], limits);
  if (loaded) {
    fmt::print("{{\"loaded\": true, \"how\": \"{}\", \"stopped_ns\": {}}}\n", loaded->how,
               loaded->stopped_ns);
    return 0;
  }
  fmt::print("{{\"loaded\": false, \"error\": \"{}\"}}\n", json_escape(loaded.error().what));
  return 1;
}
