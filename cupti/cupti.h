// CUPTI as the process has it: never linked, found among the mapped libraries.
#pragma once

#include <cstdint>

#include "cupti/cupti_abi.h"

namespace dynprof_cupti {

#define DYNPROF_DECLARE(name, parameters) CuptiResult(*name) parameters;
struct CuptiFunctions {
  CUPTI_ABI_FUNCTIONS(DYNPROF_DECLARE)
};
struct CuptiSharedFunctions {
  CUPTI_ABI_SHARED_FUNCTIONS(DYNPROF_DECLARE)
};
#undef DYNPROF_DECLARE
extern CuptiFunctions cupti;
extern CuptiSharedFunctions cupti_shared;  // all null before CUDA 13.3

// CUDA 12.0; older ones lack fields that are read, see cupti_abi.h.
inline constexpr std::uint32_t kOldestCupti = 19;

enum class CuptiFound : std::uint8_t { kYes, kNo, kIncomplete };
// Fills both once. The library stays mapped from then on.
CuptiFound find_cupti();

// The handle of a mapped library whose file name begins so; nullptr: none.
void* find_mapped(const char* file_name);

}  // namespace dynprof_cupti
