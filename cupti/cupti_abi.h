/* What is used of NVIDIA's CUPTI and driver interfaces, declared anew so that the build needs no CUDA
 * headers. Facts from cupti_activity.h, cupti_callbacks.h and cupti_result.h of CUDA 13.0 (API 130001);
 * the fields named here lie at the same offsets in CUpti_ActivityKernel5 (CUDA 11) to Kernel13 (13.4),
 * Memcpy4 to 7, MemcpyPtoP3 and 4, Memset3 to 5. tests/fakes/check_abi.cpp holds them against the real headers
 * where those are present. Plain C: the fakes of the tests use it too. */
#ifndef DYNPROF_CUPTI_ABI_H
#define DYNPROF_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define CUPTI_ABI_CONSTANT(name, value) inline constexpr uint32_t name = (value)
#define CUPTI_ABI_ASSERT(condition) static_assert(condition, #condition)
extern "C" {
#else
#define CUPTI_ABI_CONSTANT(name, value) enum { name = (value) }
#define CUPTI_ABI_ASSERT(condition) _Static_assert(condition, #condition)
#endif

typedef int32_t CuptiResult;
CUPTI_ABI_CONSTANT(kCuptiSuccess, 0);
CUPTI_ABI_CONSTANT(kCuptiInvalidParameter, 1);
CUPTI_ABI_CONSTANT(kCuptiMaxLimitReached, 12);
CUPTI_ABI_CONSTANT(kCuptiNotInitialized, 15);
CUPTI_ABI_CONSTANT(kCuptiNotSupported, 27);
CUPTI_ABI_CONSTANT(kCuptiMultipleSubscribers, 39);
CUPTI_ABI_CONSTANT(kCuptiUnknown, 999);

CUPTI_ABI_CONSTANT(kCuptiKindMemcpy, 1);
CUPTI_ABI_CONSTANT(kCuptiKindMemset, 2);
CUPTI_ABI_CONSTANT(kCuptiKindKernel, 3);
CUPTI_ABI_CONSTANT(kCuptiKindConcurrentKernel, 10);
CUPTI_ABI_CONSTANT(kCuptiKindMemcpyPeer, 22);
CUPTI_ABI_CONSTANT(kCuptiKindSynchronization, 38);

CUPTI_ABI_CONSTANT(kCuptiDomainDriver, 1);
CUPTI_ABI_CONSTANT(kCuptiDomainRuntime, 2);
CUPTI_ABI_CONSTANT(kCuptiEnter, 0);
CUPTI_ABI_CONSTANT(kCuptiExit, 1);
CUPTI_ABI_CONSTANT(kCuptiFlushForced, 1);
CUPTI_ABI_CONSTANT(kCuptiClockAttribute, 22);

/* Callback ids used by name; the whole list is calls_table.h. */
CUPTI_ABI_CONSTANT(kCuptiMaxCbid, 1024);

struct CuptiCallbackData {
  uint32_t site;
  const char* function_name;
  const void* function_params;
  void* return_value; /* int*, at exit only */
  const char* symbol_name;
  void* context;
  uint32_t context_uid;
  uint64_t* correlation_data;
  uint32_t correlation_id;
};
CUPTI_ABI_ASSERT(sizeof(struct CuptiCallbackData) == 72);

/* Activity records are packed and 8-byte aligned; buffers come back full of them. */
struct __attribute__((packed, aligned(8))) CuptiKernel {
  uint32_t kind;
  uint8_t cache_config;
  uint8_t shared_memory_config;
  uint16_t registers_per_thread;
  uint32_t partitioned_requested, partitioned_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;
  uint8_t launch_type, carveout_is_requested, carveout_requested, padding;
  uint32_t shared_executed;
  uint64_t graph_node;
  uint32_t shmem_limit; /* from here on: Kernel6 (CUDA 11.1) and later */
  uint32_t graph;
  void* access_policy_window;
  uint32_t channel, channel_type; /* Kernel7 (11.6) */
  uint32_t cluster[3];            /* Kernel8 (11.8) */
};
CUPTI_ABI_ASSERT(offsetof(struct CuptiKernel, cluster) == 176);

struct __attribute__((packed, aligned(8))) CuptiMemcpy {
  uint32_t kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
  uint32_t correlation, runtime_correlation, pad;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel, channel_type;
};
CUPTI_ABI_ASSERT(offsetof(struct CuptiMemcpy, graph_node) == 64);

struct __attribute__((packed, aligned(8))) CuptiMemcpyPeer {
  uint32_t kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
  uint32_t source_device, source_context, destination_device, destination_context;
  uint32_t correlation;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel, channel_type;
};
CUPTI_ABI_ASSERT(offsetof(struct CuptiMemcpyPeer, graph_node) == 72);

struct __attribute__((packed, aligned(8))) CuptiMemset {
  uint32_t kind, value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint16_t flags, memory_kind;
  uint32_t pad;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel, channel_type;
};
CUPTI_ABI_ASSERT(offsetof(struct CuptiMemset, graph_node) == 64);

struct __attribute__((packed, aligned(8))) CuptiSynchronization {
  uint32_t kind, type;
  uint64_t start, end;
  uint32_t correlation, context, stream, event;
};
CUPTI_ABI_ASSERT(sizeof(struct CuptiSynchronization) == 40);

typedef void* CuptiSubscriber;
typedef void (*CuptiCallback)(void* user, uint32_t domain, uint32_t cbid, const void* data);
typedef uint64_t (*CuptiClock)(void);
typedef void (*CuptiBufferRequested)(uint8_t** buffer, size_t* size, size_t* max_records);
typedef void (*CuptiBufferCompleted)(void* context, uint32_t stream, uint8_t* buffer, size_t size,
                                     size_t valid);

/* CUDA 13.3 and later: one of several subscribers. Facts from the headers of CUDA 13.5. */
struct CuptiSubscriberParams {
  size_t bytes; /* of this struct */
  const char* name;
  char* holder; /* of CUPTI, or the first subscriber: filled in, holder_bytes at most */
  size_t holder_bytes;
  uint8_t allow_several;
  uint8_t padding[7];
};
CUPTI_ABI_ASSERT(sizeof(struct CuptiSubscriberParams) == 40);
typedef void (*CuptiOwnBufferRequested)(uint8_t** buffer, size_t* size, size_t* max_records,
                                        void* info);
typedef void (*CuptiOwnBufferCompleted)(uint8_t* buffer, size_t size, size_t valid, void* info);

/* The functions used, by X(name, parameters). */
#define CUPTI_ABI_FUNCTIONS(X)                                                            \
  X(cuptiGetVersion, (uint32_t * version))                                                \
  X(cuptiSubscribe, (CuptiSubscriber * subscriber, CuptiCallback callback, void* user))   \
  X(cuptiUnsubscribe, (CuptiSubscriber subscriber))                                       \
  X(cuptiEnableCallback,                                                                  \
    (uint32_t enable, CuptiSubscriber subscriber, uint32_t domain, uint32_t cbid))        \
  X(cuptiActivityEnable, (uint32_t kind))                                                 \
  X(cuptiActivityDisable, (uint32_t kind))                                                \
  X(cuptiActivityRegisterCallbacks,                                                       \
    (CuptiBufferRequested requested, CuptiBufferCompleted completed))                     \
  X(cuptiActivityGetNextRecord, (uint8_t * buffer, size_t valid, void** record))          \
  X(cuptiActivityGetNumDroppedRecords, (void* context, uint32_t stream, size_t* dropped)) \
  X(cuptiActivityFlushAll, (uint32_t flag))                                               \
  X(cuptiActivityRegisterTimestampCallback, (CuptiClock clock))

/* All of these, or none is used. */
#define CUPTI_ABI_SHARED_FUNCTIONS(X)                                                     \
  X(cuptiSubscribe_v2, (CuptiSubscriber * subscriber, CuptiCallback callback, void* user, \
                        struct CuptiSubscriberParams* params))                            \
  X(cuptiActivityRegisterCallbacks_v2,                                                    \
    (CuptiSubscriber subscriber, CuptiOwnBufferRequested requested,                       \
     CuptiOwnBufferCompleted completed))                                                  \
  X(cuptiActivityEnable_v2, (CuptiSubscriber subscriber, uint32_t kind, void* config))    \
  X(cuptiActivityDisable_v2, (CuptiSubscriber subscriber, uint32_t kind, void* config))   \
  X(cuptiActivityGetNextRecord_v2,                                                        \
    (CuptiSubscriber subscriber, uint8_t * buffer, size_t valid, void** record))          \
  X(cuptiActivityGetNumDroppedRecords_v2,                                                 \
    (CuptiSubscriber subscriber, void* context, uint32_t stream, size_t* dropped))        \
  X(cuptiActivitySetAttribute_v2,                                                         \
    (CuptiSubscriber subscriber, uint32_t attribute, size_t * bytes, void* value))        \
  X(cuptiGetTimestamp_v2, (CuptiSubscriber subscriber, uint64_t * timestamp))

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
