// The GPU's part of a chrome trace, in the words of Kineto (output_json.cpp, 2025): categories kernel,
// gpu_memcpy, gpu_memset, cuda_sync on one process per device with one thread per stream, cuda_runtime
// and cuda_driver on the thread that called, "ac2g" arrows from calls to what they started.
//
// One difference: calls are in their thread's row of compiled regions, not in that of its stacks, which
// samples give and exact times would cut across.
#pragma once

#include "symbolizer/attribution/gpu_work.h"
#include "symbolizer/base/json_writer.h"

namespace dynprof {

class TraceFile;
struct TraceShared;

// "deviceProperties": […] of the trace's head; nothing without devices.
void write_device_properties(JsonWriter& json, const GpuWork& gpu);
// Names and order of the rows, before any slice.
void write_gpu_rows(TraceShared& shared, TraceFile& file);
void write_gpu_slices(TraceShared& shared, TraceFile& file);

}  // namespace dynprof
