// Loads libdynprof_cupti.so into a CPython, as `record --gpu on` does, and prints how it went as JSON.
//   load_library PID LIBRARY [MILLISECONDS]
// MILLISECONDS: how long the main thread has to come to a safe point.
#include <fmt/format.h>

#include <cstdlib>

#include "symbolizer/base/text.h"
#include "user/inject/load_library.h"
#include "user/target/reading_process.h"

int main(int argc, char** argv) {
  using namespace dynprof;
  if (argc < 3) return 2;
  ReadingProcess::of_program().prepare();
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
