// CUPTI's activity buffers: lent to it, read when it gives them back, and turned into records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti/cupti_abi.h"

namespace dynprof_cupti {

inline constexpr std::size_t kBufferBytes = 1u << 20;

// The two callbacks for cuptiActivityRegisterCallbacks.
void on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
void on_buffer_completed(void* context, std::uint32_t stream, std::uint8_t* buffer,
                         std::size_t size, std::size_t valid);

// The same for a subscriber with records of its own.
void on_own_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records,
                             void* info);
void on_own_buffer_completed(std::uint8_t* buffer, std::size_t size, std::size_t valid, void* info);

// From now on none is given back to the kernel: a forced flush returns buffers with records that CUPTI may still complete.
void keep_buffers(bool keep);

// Buffers CUPTI holds now. cuptiActivityFlushAll hangs in a CUPTI that never asked for one.
std::uint32_t lent_buffers();

}  // namespace dynprof_cupti
