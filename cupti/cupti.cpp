#include "cupti/cupti.h"

#include <link.h>
#include <string.h>

#include "cupti/libc.h"

namespace dynprof_cupti {

CuptiFunctions cupti{};
CuptiSharedFunctions cupti_shared{};

namespace {

struct Wanted {
  const char* file_name;
  char path[4096];
};

// Runs under the loader's lock: only copies the path.
int look_at(dl_phdr_info* info, std::size_t, void* data) {
  auto& wanted = *static_cast<Wanted*>(data);
  const char* path = info->dlpi_name;
  if (path == nullptr) return 0;
  const char* slash = strrchr(path, '/');
  const char* base = slash ? slash + 1 : path;
  if (strncmp(base, wanted.file_name, strlen(wanted.file_name)) != 0) return 0;
  const std::size_t length = strlen(path);
  if (length >= sizeof wanted.path) return 0;
  memcpy(wanted.path, path, length + 1);
  return 1;
}

// False: one of them is missing.
#define DYNPROF_RESOLVE(name, parameters)                                                \
  found.name = reinterpret_cast<CuptiResult(*) parameters>(find_symbol(library, #name)); \
  complete = complete && found.name != nullptr;
bool resolve(void* library, CuptiFunctions& found) {
  bool complete = true;
  CUPTI_ABI_FUNCTIONS(DYNPROF_RESOLVE)
  return complete;
}
bool resolve(void* library, CuptiSharedFunctions& found) {
  bool complete = true;
  CUPTI_ABI_SHARED_FUNCTIONS(DYNPROF_RESOLVE)
  return complete;
}
#undef DYNPROF_RESOLVE

}  // namespace

void* find_mapped(const char* file_name) {
  static Wanted wanted;  // the worker's only
  wanted.file_name = file_name;
  return dl_iterate_phdr(look_at, &wanted) ? open_loaded_library(wanted.path) : nullptr;
}

CuptiFound find_cupti() {
  if (cupti.cuptiGetVersion != nullptr) return CuptiFound::kYes;
  void* library = find_mapped("libcupti.so");
  if (library == nullptr)
    if (const char* path = environment_text("DYNPROF_GPU_CUPTI")) library = open_library(path);
  if (library == nullptr) return CuptiFound::kNo;
  CuptiFunctions found{};
  if (!resolve(library, found)) return CuptiFound::kIncomplete;
  if (CuptiSharedFunctions found_shared{}; resolve(library, found_shared))
    cupti_shared = found_shared;
  cupti = found;
  return CuptiFound::kYes;
}

}  // namespace dynprof_cupti
