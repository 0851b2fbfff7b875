#include "user/target/in_place_reader.h"

#include <mutex>
#include <utility>

namespace dynprof {
namespace {

struct Installed {
  std::mutex mutex;
  std::shared_ptr<InPlaceReader> reader;
};

Installed& of_program() {
  static Installed installed;
  return installed;
}

}  // namespace

void InPlaceReader::install(std::shared_ptr<InPlaceReader> reader) {
  Installed& installed = of_program();
  std::lock_guard lock(installed.mutex);
  installed.reader.swap(reader);
}

std::shared_ptr<InPlaceReader> InPlaceReader::installed() {
  Installed& installed = of_program();
  std::lock_guard lock(installed.mutex);
  return installed.reader;
}

}  // namespace dynprof
