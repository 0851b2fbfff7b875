// Ids of a recording: each is an index into the vector of `Tables` that it is named after.
#pragma once

#include <cstdint>

namespace dynprof {

using StringId = std::uint32_t;
using BlobId = std::uint32_t;
using CodeId = std::uint32_t;
using FrameId = std::uint32_t;
using StackId = std::uint32_t;
using ThreadId = std::uint32_t;  // index, not a tid
using ContextId = std::uint32_t;

}  // namespace dynprof
