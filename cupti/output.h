// Everything that leaves the process: batches of records, names and status, by USDT and, where asked
// for, into a file. Used by the worker only.
#pragma once

#include <cstdint>

#include "cupti/wire.h"

namespace dynprof_cupti {

// The file DYNPROF_GPU_DUMP names ("%p" in it is the process id): made new, never followed, never
// overwritten. 0, or why it could not be made (an errno).
int open_dump(const char* path);
bool dump_is_open();

void append(const dynprof_gpu_record& record);  // into the batch; sent when full
void send_batch();
void drain_ring();    // what is in the ring, into batches
void replay_names();  // all of them again, before the next batch

// Which other client has CUPTI, before the status that says so; nothing where its name is not known.
void send_holder(const char* name);
// A status with the counters as they are now.
void send_status(std::uint32_t code, std::uint32_t detail, std::uint32_t cupti_version,
                 std::uint32_t session);

}  // namespace dynprof_cupti
