// Our subscription to CUPTI. Since CUDA 13.3 one of several, each with its own activity records (the functions that end in
// _v2); where CUPTI, the driver or another client does not allow that, the only one. Used by the worker, and by CUPTI's
// threads that hand over buffers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti/cupti_abi.h"

namespace dynprof_cupti {

CuptiResult subscribe(CuptiCallback callback);
void unsubscribe();
// After a subscription that failed: the name of the client that has CUPTI, as it calls itself; "" where that is not known.
const char* holder();

CuptiResult enable_call(std::uint32_t enable, std::uint32_t domain, std::uint32_t cbid);
// Our buffers and our clock: before any kind of record is enabled.
CuptiResult prepare_activity();
CuptiResult enable_kind(std::uint32_t kind);
void disable_kind(std::uint32_t kind);
// What has been collected comes back. `last`: also what is not complete, unless that would be done to other clients too.
void flush(bool last);

// Of a buffer that came back.
CuptiResult next_record(std::uint8_t* buffer, std::size_t valid, void** record);
CuptiResult dropped_records(void* context, std::uint32_t stream, std::size_t* dropped);
// What CUPTI's times are ahead of CLOCK_MONOTONIC: 0 where it uses our clock.
std::int64_t clock_offset_ns();
// The clock it uses instead may be set while it runs.
void measure_clock();

}  // namespace dynprof_cupti
