/* A CUPTI over the fake driver. As the real one it asks for a buffer at the first record, hands full
 * buffers over from a thread of its own and others from the flushing thread, completes records in the
 * order the GPU finishes them, and has one subscriber, or from version 130300 on several. Unlike the real one it aborts, with a reason,
 * where a caller does what would crash or hang.
 *
 *   FAKE_CUPTI_VERSION            what cuptiGetVersion says (130001)
 *   FAKE_CUPTI_SUBSCRIBE_RESULT   what cuptiSubscribe returns (0)
 *   FAKE_CUPTI_SUBSCRIBE_MS       how long it takes
 *   FAKE_CUPTI_ENABLE_RESULT      what cuptiActivityEnable returns for kernels (0)
 *   FAKE_CUPTI_CLOCK_SKEW_NS      added to all times, as a clock that another client registered would
 *   FAKE_CUPTI_DROP_EVERY         each so manieth record is lost, and reported as such
 *   FAKE_CUPTI_ONE_SUBSCRIBER     the driver is older than CUPTI, so that there is one all the same
 *   FAKE_CUPTI_OWN_RESULT         what cuptiSubscribe_v2 returns (0)
 *   FAKE_CUPTI_OWN_CLOCK          what becomes of a clock that one of several wants: 0 refused, 1 used, 2 ignored (0) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cupti/cupti_abi.h"
#include "tests/fakes/cupti_buffers.h"
#include "tests/fakes/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- what the driver tells ---- */

static void on_call(int site, struct fake_call* call, int* result) {
  const struct CuptiCallbackData data = {
      .site = (uint32_t)site,
      .function_name = call->name,
      .return_value = result,
      .symbol_name = call->symbol,
      .context_uid = 1,
      .correlation_data = &call->data,
      .correlation_id = call->correlation,
  };
  for (struct subscriber* s = subscribers; s < subscribers + kSubscribers; ++s) {
    const CuptiCallback told = s->callback;
    if (told && s->call_enabled[call->domain][call->cbid])
      told(s->user, call->domain, call->cbid, &data);
  }
}

static void on_work(const struct fake_work* work) {
  for (struct subscriber* s = subscribers; s < subscribers + kSubscribers; ++s)
    if (s->kind_enabled[work->kind]) keep_record(s, work);
}

/* ---- life ---- */

static void lock_it(void) { pthread_mutex_lock(&lock); }
static void unlock_it(void) { pthread_mutex_unlock(&lock); }
static void unlock_in_child(void) {
  forked = 1;
  pthread_mutex_init(&delivery, NULL); /* a fork does not wait for callbacks */
  pthread_mutex_unlock(&lock);
}
static void at_exit(void) {
  for (int i = 0; i < kSubscribers; ++i)
    if (subscribers[i].callback && !forked &&
        (i == 0 || strcmp(subscribers[i].name, "CUPTI for dynprof-bpf") == 0))
      die("still subscribed when its exit handler ran");
  exited = 1;
}

__attribute__((constructor)) static void loaded(void) {
  pthread_atfork(lock_it, unlock_it, unlock_in_child);
  atexit(at_exit);
}

static void (*driver_function(const char* name))(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver ? (void (*)(void))dlsym(driver, name) : NULL;
}

static CuptiResult listen_to_driver(void) {
  static const struct fake_tools ours = {on_call, on_work};
  int (*set_tools)(const struct fake_tools*) =
      (int (*)(const struct fake_tools*))driver_function("fake_cuda_set_tools");
  return set_tools && set_tools(&ours) == 0 ? (CuptiResult)kCuptiSuccess
                                            : (CuptiResult)kCuptiUnknown;
}

EXPORT CuptiResult cuptiGetVersion(uint32_t* version) {
  *version = (uint32_t)number("FAKE_CUPTI_VERSION", 130001);
  return kCuptiSuccess;
}

static struct subscriber* first_taken(void) {
  for (struct subscriber* s = subscribers; s < subscribers + kSubscribers; ++s)
    if (s->taken) return s;
  return NULL;
}

EXPORT CuptiResult cuptiSubscribe(CuptiSubscriber* subscriber, CuptiCallback wanted, void* user) {
  check_alive();
  usleep((useconds_t)number("FAKE_CUPTI_SUBSCRIBE_MS", 0) * 1000);
  check_alive();
  const CuptiResult result = (CuptiResult)number("FAKE_CUPTI_SUBSCRIBE_RESULT", 0);
  if (result) return result;
  if (first_taken()) return kCuptiMultipleSubscribers;
  if (listen_to_driver() != kCuptiSuccess) return kCuptiUnknown;
  global->user = user;
  global->taken = 1;
  global->callback = wanted;
  *subscriber = global;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiSubscribe_v2(CuptiSubscriber* subscriber, CuptiCallback wanted, void* user,
                                     struct CuptiSubscriberParams* params) {
  check_alive();
  if (params->bytes != sizeof *params) return kCuptiInvalidParameter;
  const CuptiResult result = (CuptiResult)number("FAKE_CUPTI_OWN_RESULT", 0);
  if (result) return result;
  const struct subscriber* first = first_taken();
  if (first && params->holder) snprintf(params->holder, params->holder_bytes, "%s", first->name);
  if (params->allow_several && number("FAKE_CUPTI_ONE_SUBSCRIBER", 0))
    return kCuptiMultipleSubscribers;
  if (first && (!params->allow_several || !first->allows_others)) return kCuptiMultipleSubscribers;
  if (listen_to_driver() != kCuptiSuccess) return kCuptiUnknown;
  for (struct subscriber* s = subscribers + 1; s < subscribers + kSubscribers; ++s) {
    if (s->taken) continue;
    s->taken = 1;
    s->allows_others = params->allow_several;
    s->clock = NULL;
    snprintf(s->name, sizeof s->name, "CUPTI for %s", params->name ? params->name : "");
    s->user = user;
    s->callback = wanted;
    *subscriber = s;
    return kCuptiSuccess;
  }
  return kCuptiMaxLimitReached;
}

static struct subscriber* known(CuptiSubscriber handle) {
  for (struct subscriber* s = subscribers; s < subscribers + kSubscribers; ++s)
    if (s == handle && s->taken) return s;
  return NULL;
}

EXPORT CuptiResult cuptiUnsubscribe(CuptiSubscriber subscriber) {
  check_alive();
  struct subscriber* s = known(subscriber);
  if (!s) die("unsubscribed without a subscription");
  s->callback = NULL;
  memset((void*)s->call_enabled, 0, sizeof s->call_enabled);
  if (s != global) {
    for (int kind = 0; kind < kKinds; ++kind)
      if (s->kind_enabled[kind]) die("unsubscribed while it collects");
  }
  s->taken = 0;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiEnableCallback(uint32_t enable, CuptiSubscriber subscriber, uint32_t domain,
                                       uint32_t cbid) {
  check_alive();
  struct subscriber* s = known(subscriber);
  if (!s || domain < 1 || domain > 2 || cbid == 0 || cbid >= 830) return kCuptiInvalidParameter;
  s->call_enabled[domain][cbid] = enable != 0;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityRegisterCallbacks(CuptiBufferRequested requested,
                                                  CuptiBufferCompleted completed) {
  check_alive();
  if (!requested || !completed) return kCuptiInvalidParameter;
  pthread_mutex_lock(&lock);
  global->on_requested = requested;
  global->on_completed = completed;
  pthread_mutex_unlock(&lock);
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityRegisterCallbacks_v2(CuptiSubscriber subscriber,
                                                     CuptiOwnBufferRequested requested,
                                                     CuptiOwnBufferCompleted completed) {
  check_alive();
  struct subscriber* s = known(subscriber);
  if (!s || !requested || !completed) return kCuptiInvalidParameter;
  pthread_mutex_lock(&lock);
  s->on_own_requested = requested;
  s->on_own_completed = completed;
  pthread_mutex_unlock(&lock);
  return kCuptiSuccess;
}

static CuptiResult enable_kind(struct subscriber* s, uint32_t kind) {
  check_alive();
  if (!s || kind >= kKinds) return kCuptiInvalidParameter;
  const CuptiResult result = (CuptiResult)number("FAKE_CUPTI_ENABLE_RESULT", 0);
  if (result && kind == kCuptiKindConcurrentKernel) return result;
  if (!wants_records(s)) die("activity enabled before the buffer callbacks were registered");
  pthread_mutex_lock(&lock);
  if (!collector_runs) {
    pthread_t thread;
    collector_runs = pthread_create(&thread, NULL, collector, NULL) == 0;
    if (!collector_runs) abort();
    pthread_detach(thread);
  }
  pthread_mutex_unlock(&lock);
  s->kind_enabled[kind] = 1;
  return kCuptiSuccess;
}

static CuptiResult disable_kind(struct subscriber* s, uint32_t kind) {
  check_alive();
  if (!s || kind >= kKinds) return kCuptiInvalidParameter;
  s->kind_enabled[kind] = 0;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityEnable(uint32_t kind) { return enable_kind(global, kind); }
EXPORT CuptiResult cuptiActivityDisable(uint32_t kind) { return disable_kind(global, kind); }
EXPORT CuptiResult cuptiActivityEnable_v2(CuptiSubscriber s, uint32_t kind, void* config) {
  (void)config;
  return enable_kind(known(s), kind);
}
EXPORT CuptiResult cuptiActivityDisable_v2(CuptiSubscriber s, uint32_t kind, void* config) {
  (void)config;
  return disable_kind(known(s), kind);
}

EXPORT CuptiResult cuptiActivityFlushAll(uint32_t flag) {
  check_alive();
  pthread_mutex_lock(&delivery);
  pthread_mutex_lock(&lock);
  if (!ever_requested) die("flushed before a buffer was asked for: this would hang");
  for (struct subscriber* s = subscribers; s < subscribers + kSubscribers; ++s) {
    if (!wants_records(s)) continue;
    collect(s);
    if (s->open_buffer.used > 0 || flag == kCuptiFlushForced) hand_over(s);
  }
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&delivery);
  return kCuptiSuccess;
}

static size_t record_size(const uint8_t* at) {
  uint32_t kind;
  memcpy(&kind, at, sizeof kind);
  switch (kind) {
    case kCuptiKindConcurrentKernel:
      return kMaxRecord;
    case kCuptiKindMemcpy:
      return 96;
    case kCuptiKindMemcpyPeer:
      return 96;
    case kCuptiKindMemset:
      return 88;
    case kCuptiKindSynchronization:
      return 56;
    default:
      die("walked into memory that holds no record");
      return 0;
  }
}

EXPORT CuptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, void** record) {
  check_alive();
  uint8_t* next = *record ? (uint8_t*)*record + record_size(*record) : buffer;
  if (next >= buffer + valid) return kCuptiMaxLimitReached;
  *record = next;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityGetNextRecord_v2(CuptiSubscriber subscriber, uint8_t* buffer,
                                                 size_t valid, void** record) {
  return known(subscriber) ? cuptiActivityGetNextRecord(buffer, valid, record)
                           : (CuptiResult)kCuptiInvalidParameter;
}

static CuptiResult take_dropped(struct subscriber* s, size_t* count) {
  if (!s) return kCuptiInvalidParameter;
  pthread_mutex_lock(&lock);
  *count = s->dropped;
  s->dropped = 0;
  pthread_mutex_unlock(&lock);
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream,
                                                     size_t* count) {
  (void)context, (void)stream;
  return take_dropped(global, count);
}

EXPORT CuptiResult cuptiActivityGetNumDroppedRecords_v2(CuptiSubscriber subscriber, void* context,
                                                        uint32_t stream, size_t* count) {
  (void)context, (void)stream;
  return take_dropped(known(subscriber), count);
}

EXPORT CuptiResult cuptiActivitySetAttribute_v2(CuptiSubscriber subscriber, uint32_t attribute,
                                                size_t* bytes, void* value) {
  check_alive();
  struct subscriber* s = known(subscriber);
  if (!s || attribute != kCuptiClockAttribute || *bytes != sizeof s->clock)
    return kCuptiInvalidParameter;
  const uint64_t becomes = number("FAKE_CUPTI_OWN_CLOCK", 0);
  if (becomes == 0) return kCuptiNotSupported;
  if (becomes == 1) memcpy(&s->clock, value, sizeof s->clock);
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiGetTimestamp_v2(CuptiSubscriber subscriber, uint64_t* timestamp) {
  struct subscriber* s = known(subscriber);
  if (!s) return kCuptiInvalidParameter;
  *timestamp = s->clock ? s->clock() : read_clock(CLOCK_REALTIME);
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityRegisterTimestampCallback(CuptiClock clock) {
  check_alive();
  if (++clock_registrations > 1) die("a clock was registered twice");
  global->clock = clock;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiFinalize(void) {
  die("finalized: CUDA graphs do not survive that");
  return kCuptiSuccess;
}
