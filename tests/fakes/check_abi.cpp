// Compiled, not run, where CUDA's headers are: what cupti/cupti_abi.h and cupti/calls_table.h say
// against what NVIDIA's headers say. Needs -I for CUDA's include directory.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>

#include "cupti/cupti_abi.h"
#include "cupti/wire.h"

// Old record shapes; those of CUDA 13.0 are in cupti_activity.h.
#include <cupti_activity_deprecated.h>

#define SAME(ours, our_field, theirs, their_field)                            \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                sizeof(ours::our_field) == sizeof(theirs::their_field))

#define SAME_KERNEL(theirs)                                                \
  SAME(CuptiKernel, kind, theirs, kind);                                   \
  SAME(CuptiKernel, registers_per_thread, theirs, registersPerThread);     \
  SAME(CuptiKernel, start, theirs, start);                                 \
  SAME(CuptiKernel, end, theirs, end);                                     \
  SAME(CuptiKernel, device, theirs, deviceId);                             \
  SAME(CuptiKernel, context, theirs, contextId);                           \
  SAME(CuptiKernel, stream, theirs, streamId);                             \
  static_assert(offsetof(CuptiKernel, grid) == offsetof(theirs, gridX));   \
  static_assert(offsetof(CuptiKernel, block) == offsetof(theirs, blockX)); \
  SAME(CuptiKernel, static_shared, theirs, staticSharedMemory);            \
  SAME(CuptiKernel, dynamic_shared, theirs, dynamicSharedMemory);          \
  SAME(CuptiKernel, local_per_thread, theirs, localMemoryPerThread);       \
  SAME(CuptiKernel, correlation, theirs, correlationId);                   \
  SAME(CuptiKernel, name, theirs, name);                                   \
  SAME(CuptiKernel, queued, theirs, queued);                               \
  SAME(CuptiKernel, launch_type, theirs, launchType);                      \
  SAME(CuptiKernel, graph_node, theirs, graphNodeId)
SAME_KERNEL(CUpti_ActivityKernel5);
SAME_KERNEL(CUpti_ActivityKernel8);
SAME_KERNEL(CUpti_ActivityKernel9);
SAME_KERNEL(CUpti_ActivityKernel10);
#define SAME_LATE_KERNEL(theirs)                        \
  SAME(CuptiKernel, graph, theirs, graphId);            \
  SAME(CuptiKernel, channel, theirs, channelID);        \
  SAME(CuptiKernel, channel_type, theirs, channelType); \
  static_assert(offsetof(CuptiKernel, cluster) == offsetof(theirs, clusterX))
SAME_LATE_KERNEL(CUpti_ActivityKernel8);
SAME_LATE_KERNEL(CUpti_ActivityKernel9);
SAME_LATE_KERNEL(CUpti_ActivityKernel10);

#define SAME_WORK(ours, theirs)                   \
  SAME(ours, kind, theirs, kind);                 \
  SAME(ours, bytes, theirs, bytes);               \
  SAME(ours, start, theirs, start);               \
  SAME(ours, end, theirs, end);                   \
  SAME(ours, device, theirs, deviceId);           \
  SAME(ours, context, theirs, contextId);         \
  SAME(ours, stream, theirs, streamId);           \
  SAME(ours, correlation, theirs, correlationId); \
  SAME(ours, flags, theirs, flags);               \
  SAME(ours, graph_node, theirs, graphNodeId);    \
  SAME(ours, graph, theirs, graphId);             \
  SAME(ours, channel, theirs, channelID);         \
  SAME(ours, channel_type, theirs, channelType)
SAME_WORK(CuptiMemcpy, CUpti_ActivityMemcpy5);
SAME_WORK(CuptiMemcpy, CUpti_ActivityMemcpy6);
SAME_WORK(CuptiMemcpyPeer, CUpti_ActivityMemcpyPtoP4);
SAME_WORK(CuptiMemset, CUpti_ActivityMemset4);
SAME(CuptiMemcpy, copy_kind, CUpti_ActivityMemcpy6, copyKind);
SAME(CuptiMemcpy, source_kind, CUpti_ActivityMemcpy6, srcKind);
SAME(CuptiMemcpy, destination_kind, CUpti_ActivityMemcpy6, dstKind);
SAME(CuptiMemcpyPeer, source_device, CUpti_ActivityMemcpyPtoP4, srcDeviceId);
SAME(CuptiMemcpyPeer, destination_context, CUpti_ActivityMemcpyPtoP4, dstContextId);
SAME(CuptiMemset, value, CUpti_ActivityMemset4, value);
SAME(CuptiMemset, memory_kind, CUpti_ActivityMemset4, memoryKind);

#define SAME_SYNC(theirs)                                         \
  SAME(CuptiSynchronization, type, theirs, type);                 \
  SAME(CuptiSynchronization, start, theirs, start);               \
  SAME(CuptiSynchronization, correlation, theirs, correlationId); \
  SAME(CuptiSynchronization, stream, theirs, streamId);           \
  SAME(CuptiSynchronization, event, theirs, cudaEventId)
SAME_SYNC(CUpti_ActivitySynchronization);
SAME_SYNC(CUpti_ActivitySynchronization2);

SAME(CuptiCallbackData, site, CUpti_CallbackData, callbackSite);
SAME(CuptiCallbackData, return_value, CUpti_CallbackData, functionReturnValue);
SAME(CuptiCallbackData, symbol_name, CUpti_CallbackData, symbolName);
SAME(CuptiCallbackData, context_uid, CUpti_CallbackData, contextUid);
SAME(CuptiCallbackData, correlation_data, CUpti_CallbackData, correlationData);
SAME(CuptiCallbackData, correlation_id, CUpti_CallbackData, correlationId);

#if CUPTI_API_VERSION >= 130400
SAME_KERNEL(CUpti_ActivityKernel13);
SAME_LATE_KERNEL(CUpti_ActivityKernel13);
SAME(CuptiSubscriberParams, bytes, CUpti_SubscriberParams, structSize);
SAME(CuptiSubscriberParams, name, CUpti_SubscriberParams, subscriberName);
SAME(CuptiSubscriberParams, holder, CUpti_SubscriberParams, oldSubscriberName);
SAME(CuptiSubscriberParams, holder_bytes, CUpti_SubscriberParams, oldSubscriberSize);
SAME(CuptiSubscriberParams, allow_several, CUpti_SubscriberParams, allowMultipleSubscribers);
static_assert(sizeof(CuptiSubscriberParams) == CUpti_SubscriberParams_STRUCT_SIZE);
static_assert(kCuptiClockAttribute == CUPTI_ACTIVITY_ATTR_TIMESTAMP_CALLBACK);
static_assert(__is_same(decltype(&cuptiGetTimestamp_v2),
                        CUptiResult (*)(CUpti_SubscriberHandle, uint64_t*)));
static_assert(__is_same(decltype(&cuptiActivityGetNextRecord_v2),
                        CUptiResult (*)(CUpti_SubscriberHandle, uint8_t*, size_t,
                                        CUpti_Activity**)));
static_assert(__is_same(decltype(&cuptiActivitySetAttribute_v2),
                        CUptiResult (*)(CUpti_SubscriberHandle, CUpti_ActivityAttribute, size_t*,
                                        void*)));
#endif

static_assert(kCuptiNotSupported == CUPTI_ERROR_NOT_SUPPORTED);
static_assert(kCuptiMaxLimitReached == CUPTI_ERROR_MAX_LIMIT_REACHED);
static_assert(kCuptiMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
static_assert(kCuptiKindMemcpy == CUPTI_ACTIVITY_KIND_MEMCPY);
static_assert(kCuptiKindMemset == CUPTI_ACTIVITY_KIND_MEMSET);
static_assert(kCuptiKindKernel == CUPTI_ACTIVITY_KIND_KERNEL);
static_assert(kCuptiKindConcurrentKernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
static_assert(kCuptiKindMemcpyPeer == CUPTI_ACTIVITY_KIND_MEMCPY2);
static_assert(kCuptiKindSynchronization == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
static_assert(kCuptiDomainDriver == CUPTI_CB_DOMAIN_DRIVER_API);
static_assert(kCuptiDomainRuntime == CUPTI_CB_DOMAIN_RUNTIME_API);
static_assert(kCuptiEnter == CUPTI_API_ENTER && kCuptiExit == CUPTI_API_EXIT);
static_assert(kCuptiFlushForced == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
static_assert(DYNPROF_GPU_DRIVER == kCuptiDomainDriver);
static_assert(DYNPROF_GPU_RUNTIME == kCuptiDomainRuntime);
static_assert(sizeof(CUpti_ActivityKernel10) == 216);

// The fakes and the table give callback ids as numbers.
static_assert(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 == 211);
static_assert(CUPTI_RUNTIME_TRACE_CBID_SIZE < kCuptiMaxCbid);
static_assert(CUPTI_DRIVER_TRACE_CBID_SIZE < kCuptiMaxCbid);

// Function types, as far as plain C lets them be compared.
static_assert(sizeof(CUptiResult) == sizeof(CuptiResult));
static_assert(__is_same(decltype(&cuptiActivityFlushAll), CUptiResult (*)(uint32_t)));
static_assert(__is_same(decltype(&cuptiActivityRegisterTimestampCallback),
                        CUptiResult (*)(uint64_t (*)())));
static_assert(__is_same(decltype(&cuptiActivityGetNextRecord),
                        CUptiResult (*)(uint8_t*, size_t, CUpti_Activity**)));
