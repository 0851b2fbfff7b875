#include "user/gpu/library_path.h"

#include <filesystem>

namespace dynprof {

std::string gpu_library_path() {
  constexpr const char* kName = "libdynprof_cupti.so";
  std::error_code failed;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  for (const auto& folder : {here, here.parent_path() / "lib" / "dynprof-bpf"}) {
    if (std::filesystem::exists(folder / kName, failed)) return folder / kName;
  }
  return kName;
}

}  // namespace dynprof
