// Two readings of a running process: only what both found identical is used. Between the moment
// an object is found and the moment its text is read the target may free it, and the memory then holds
// what other objects left there, well-formed and wrong. The second reading begins at torch's tables
// again, where objects freed during the first no longer appear.
#pragma once

#include "user/generated/generated_file.h"

namespace dynprof {

// The files of `second` that `first` has as well, the names aside: those count files of each look. Guards need not have
// the same reasons: those that both have are kept.
// What is left out is one sentence in `missing`.
GeneratedCode confirm_generated(const GeneratedCode& first, GeneratedCode second);

}  // namespace dynprof
