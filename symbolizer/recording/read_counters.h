// What was not read of the targets' files and memory, as user space counts it: beside the counters of
// bpf/counters.h in a recording's trailer. DYNPROF_READ_COUNTER(id, name, sentence)
#pragma once

#define DYNPROF_READ_COUNTERS(DYNPROF_READ_COUNTER)                                          \
  DYNPROF_READ_COUNTER(kFileCut, "file_cut",                                                 \
                       "files of targets read in part or not at all: too much, too slow")    \
  DYNPROF_READ_COUNTER(kFileUntrusted, "file_untrusted",                                     \
                       "files of targets not opened: another user serves their file system") \
  DYNPROF_READ_COUNTER(kFramesFull, "frames_full",                                           \
                       "native frames known by their file only: too many addresses in it")   \
  DYNPROF_READ_COUNTER(kMemoryStuck, "memory_stuck",                                         \
                       "processes whose memory was not read any further: a read did not return")
