/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The wire contract of libdynprof_cupti.so, the library inside a CUDA process, with whoever traces it:
 * USDT probes, and a file with the same records. Plain C, fixed widths, native byte order, explicit
 * padding. Kinds, codes and fields are append-only. All times are CLOCK_MONOTONIC nanoseconds.
 *
 * USDT, provider "dynprof", all arguments in registers or constants:
 *   gpu_launch(u32 correlation, u32 call, u64 start_ns, u32 flags)
 *       in the calling thread, at the entry of a CUDA call that starts work on a GPU or waits for it
 *       (cupti/calls_table.h). Runtime calls end in driver calls with the same correlation id: only
 *       the outermost fires. call: DYNPROF_GPU_CALL; flags: DYNPROF_GPU_CALL_*.
 *   gpu_launch_sampled(the same)
 *       at some of these entries: about every DYNPROF_GPU_SAMPLED_LAUNCH_NS in each thread.
 *   gpu_batch(const struct dynprof_gpu_record *records, u32 count)     count <= 127
 *   gpu_name(u32 id, const char *text, u32 length)    not terminated; precedes the first record with it
 *   gpu_status(u32 code, u32 detail, const struct dynprof_gpu_status *status, u32 bytes)
 * The last three fire in the library's own thread. What lies behind a pointer is valid until the probe
 * returns.
 *
 * The semaphores of gpu_launch and gpu_launch_sampled are the switch: a profiler sets a uprobe on one of the two. To
 * attach: gpu_status, gpu_name, gpu_batch, then the switch. To detach: the switch first, wait for
 * DYNPROF_GPU_OFF, then the others. The kernel
 * lowers a dead profiler's semaphores, and the library goes off by itself. A second profiler that
 * raises the semaphore further gets names, devices and status anew; the first one sees them twice. Linux
 * raises it once however many profilers there are: such a profiler reads names and devices from the
 * process's memory, where they stay (struct dynprof_gpu_tables). */
#ifndef DYNPROF_CUPTI_WIRE_H
#define DYNPROF_CUPTI_WIRE_H

#include <linux/types.h>
#ifdef __cplusplus
#define DYNPROF_GPU_ASSERT_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define DYNPROF_GPU_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif

#define DYNPROF_GPU_RECORD_BYTES 128
#define DYNPROF_GPU_MAX_BATCH 127 /* with a header of up to 128 bytes it fits into 16 KiB */
#define DYNPROF_GPU_MAX_NAME 4095 /* longer names are cut */
/* On average: it varies by half of itself, so that a thread that launches in step with it is not always met at the same
 * place. */
#define DYNPROF_GPU_SAMPLED_LAUNCH_NS 1000000
/* The id of a name that is not of a record: who has CUPTI, sent before the status DYNPROF_GPU_BUSY where it is known. */
#define DYNPROF_GPU_HOLDER 0xffffffffu

/* CUPTI's domains: 1 driver, 2 runtime; numbers of calls are CUPTI's callback ids. */
#define DYNPROF_GPU_DRIVER 1
#define DYNPROF_GPU_RUNTIME 2
#define DYNPROF_GPU_CALL(domain, cbid) ((__u32)(domain) << 24 | (__u32)(cbid))
#define DYNPROF_GPU_CALL_DOMAIN(call) ((call) >> 24)
/* Lies in another traced call but has a correlation id of its own. */
#define DYNPROF_GPU_CALL_NESTED 1u

enum dynprof_gpu_kind {
  DYNPROF_GPU_KERNEL = 1,
  DYNPROF_GPU_MEMCPY = 2,
  DYNPROF_GPU_MEMSET = 3,
  DYNPROF_GPU_SYNC = 4,        /* the wait, as the GPU's side saw it */
  DYNPROF_GPU_CALL_RECORD = 5, /* a finished CUDA call on a CPU thread: what gpu_launch announced */
  DYNPROF_GPU_DEVICE = 6,      /* before or soon after the first record of that device */
};

enum dynprof_gpu_call_class {
  DYNPROF_GPU_CLASS_LAUNCH = 1,
  DYNPROF_GPU_CLASS_GRAPH = 2, /* one call, many kernels: all carry its correlation id */
  DYNPROF_GPU_CLASS_MEMCPY = 3,
  DYNPROF_GPU_CLASS_MEMSET = 4,
  DYNPROF_GPU_CLASS_SYNC = 5,
};

struct dynprof_gpu_kernel {
  __s32 grid[3];
  __s32 block[3];
  __u32 cluster[3];     /* 0 unless launched with clusters */
  __u32 registers;      /* per thread */
  __u32 static_shared;  /* bytes per block */
  __u32 dynamic_shared; /* bytes per block */
  __u32 local_per_thread;
  __u32 channel;
  __u32 channel_type; /* CUpti_ChannelType */
  __u32 launch_type;  /* 0 regular, 1 and 2 cooperative */
  __u64 queued_ns;    /* 0: unknown, which is usual */
};

struct dynprof_gpu_memory { /* memcpy and memset */
  __u64 bytes;
  __u32 copy_kind;        /* CUpti_ActivityMemcpyKind; 0 for memset */
  __u32 source_kind;      /* CUpti_ActivityMemoryKind; 0 for memset */
  __u32 destination_kind; /* CUpti_ActivityMemoryKind */
  __u32 flags;            /* bit 0: asynchronous */
  __u32 value;            /* memset */
  __u32 peer;             /* 1: between two devices, the next four are valid */
  __u32 source_device, source_context;
  __u32 destination_device, destination_context;
  __u32 channel, channel_type;
  __u32 pad[4];
};

struct dynprof_gpu_sync {
  __u32 type; /* CUpti_ActivitySynchronizationType: 1 event, 2 stream wait, 3 stream, 4 context */
  __u32 event;
  __u32 pad[16];
};

struct dynprof_gpu_call {
  __u32 call;       /* DYNPROF_GPU_CALL */
  __u32 call_class; /* enum dynprof_gpu_call_class */
  __s32 result;     /* cudaError_t or CUresult */
  __u32 flags;      /* DYNPROF_GPU_CALL_* */
  __u32 pad[14];
};

struct dynprof_gpu_device { /* what cuDeviceGetAttribute says; 0: unknown */
  __u64 memory_bytes;
  __u32 compute_major, compute_minor;
  __u32 threads_per_block, threads_per_processor;
  __u32 registers_per_block, registers_per_processor;
  __u32 warp_size;
  __u32 processors;
  __u32 shared_per_block, shared_per_block_optin, shared_per_processor;
  __u32 uuid[4]; /* the same in all processes; 0: unknown */
  __u32 pad[1];
};

/* One thing that happened. name 0: it has none. */
struct dynprof_gpu_record {
  __u32 kind;        /* enum dynprof_gpu_kind */
  __u32 correlation; /* joins calls with what ran on the GPU; unique within the process */
  __u64 start_ns;
  __u64 end_ns;
  __u32 device; /* index as the process counts; ~0 for calls and syncs */
  __u32 context;
  __u32 stream;
  __u32 name;       /* of the kernel (mangled), the call or the device: see gpu_name */
  __u64 graph_node; /* 0 unless graph is set */
  __u32 graph;      /* 0: not launched by a graph */
  __u32 thread;     /* calls: the Linux thread id in the process's own pid namespace; else 0 */
  union {
    struct dynprof_gpu_kernel kernel;
    struct dynprof_gpu_memory memory;
    struct dynprof_gpu_sync sync;
    struct dynprof_gpu_call call;
    struct dynprof_gpu_device gpu;
  };
};
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_kernel, 72);
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_memory, 72);
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_sync, 72);
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_call, 72);
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_device, 72);
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_record, DYNPROF_GPU_RECORD_BYTES);

enum dynprof_gpu_code {
  DYNPROF_GPU_OFF = 0, /* after detaching; the counters are final for that session */
  DYNPROF_GPU_STARTING = 1,
  DYNPROF_GPU_ON = 2,
  DYNPROF_GPU_NO_CUPTI = 3, /* the process maps no libcupti; looked for again while attached */
  DYNPROF_GPU_TOO_OLD = 4,  /* detail: its API version, or 0 when a function is missing */
  DYNPROF_GPU_BUSY = 5,     /* another CUPTI client (detail 39); tried again every 2 s */
  DYNPROF_GPU_FAILED = 6,   /* detail: CUptiResult; tried again every 2 s */
  DYNPROF_GPU_NO_DUMP = 7,  /* the dump file: detail is an errno */
};

/* Sent with each change of state, once a second while on, and at the end. Counts are since the
 * session began. */
struct dynprof_gpu_status {
  __u32 bytes; /* of this struct */
  __u32 code;  /* enum dynprof_gpu_code */
  __u32 detail;
  __u32 cupti_version;        /* cuptiGetVersion(); 0: not known yet */
  __u64 calls;                /* announced by gpu_launch */
  __u64 records;              /* handed over in batches, of any kind */
  __u64 dropped_ring;         /* records lost in the ring: full, or late */
  __u64 dropped_rate;         /* calls left out by the rate cap */
  __u64 dropped_rate_records; /* and what they ran */
  __u64 dropped_cupti;        /* records CUPTI says it lost */
  __u64 dropped_dump;         /* records that did not fit into the dump file */
  __u64 unnamed;              /* records whose name found no place in the name table */
  __u64 implausible_times; /* GPU records outside the session: another client changed the clock */
  __u64 unknown_records;   /* of kinds or shapes this library does not know */
  __u64 foreign_buffers;   /* of another CUPTI client: read, not freed */
  __u32 session;           /* 1 for the first */
  __u32 refused_calls;     /* callback ids this CUPTI does not have */
  __u32 pad[4];
};
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_status, 128);

/* The names and devices so far. It lies where the note of the USDT probe gpu_tables has its semaphore; that probe never
 * fires. */
struct dynprof_gpu_name_entry {
  __u64 hash;
  __u32 offset; /* from dynprof_gpu_tables.text */
  __u32 length;
};
#define DYNPROF_GPU_MAX_DEVICES 64
struct dynprof_gpu_tables {
  __u64 names; /* the address of struct dynprof_gpu_name_entry[name_count]: of id 1, 2 ... */
  __u64 text;  /* of the texts */
  /* Of struct dynprof_gpu_record[DYNPROF_GPU_MAX_DEVICES]; kind 0: none of this number yet. */
  __u64 devices;
  __u32 name_count;
  __u32 pad;
};
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_name_entry, 16);
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_tables, 32);

/* The dump file: dynprof_gpu_file, then chunks: a dynprof_gpu_chunk and its bytes. A truncated tail is
 * normal: the process was killed. */
#define DYNPROF_GPU_FILE_MAGIC "DYNPGPU1"
struct dynprof_gpu_file {
  char magic[8];
  __u32 record_bytes;       /* 128 */
  __u32 pid;                /* in the process's own pid namespace */
  __u64 realtime_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC when the file was made */
};
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_file, 24);

enum dynprof_gpu_chunk_type {
  DYNPROF_GPU_CHUNK_RECORDS = 1, /* struct dynprof_gpu_record[bytes / 128] */
  DYNPROF_GPU_CHUNK_NAME = 2,    /* id in `id`; the text */
  DYNPROF_GPU_CHUNK_STATUS = 3,  /* struct dynprof_gpu_status */
};
struct dynprof_gpu_chunk {
  __u32 type;
  __u32 bytes;
  __u32 id;
  __u32 pad;
};
DYNPROF_GPU_ASSERT_SIZE(dynprof_gpu_chunk, 16);

#endif
