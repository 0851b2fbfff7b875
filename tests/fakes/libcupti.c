/* A CUPTI over the fake driver. As the real one it asks for a buffer at the first record, hands full
 * buffers over from a thread of its own and others from the flushing thread, completes records in the
 * order the GPU finishes them, and has one subscriber. Unlike the real one it aborts, with a reason,
 * where a caller does what would crash or hang.
 *
 *   FAKE_CUPTI_VERSION            what cuptiGetVersion says (130001)
 *   FAKE_CUPTI_SUBSCRIBE_RESULT   what cuptiSubscribe returns (0)
 *   FAKE_CUPTI_SUBSCRIBE_MS       how long it takes
 *   FAKE_CUPTI_ENABLE_RESULT      what cuptiActivityEnable returns for kernels (0)
 *   FAKE_CUPTI_CLOCK_SKEW_NS      added to all times, as a clock that another client registered would
 *   FAKE_CUPTI_DROP_EVERY         each so manieth record is lost, and reported as such */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cupti/cupti_abi.h"
#include "tests/fakes/cupti_records.h"
#include "tests/fakes/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))
enum { kKinds = 64 };

struct pending {
  struct pending* next;
  uint64_t end; /* CLOCK_MONOTONIC */
  size_t size;
  union record record;
};

struct buffer {
  uint8_t* address;
  size_t size, used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Held until all that was collected is handed over: a flush returns no sooner, as CUPTI's documentation
 * says of cuptiActivityFlushAll ("blocking"). Taken before `lock`. */
static pthread_mutex_t delivery = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(CuptiCallback) callback;
static void* callback_user;
static _Atomic(uint8_t) call_enabled[3][kCuptiMaxCbid];
static _Atomic(uint8_t) kind_enabled[kKinds];
static CuptiBufferRequested on_requested;
static CuptiBufferCompleted on_completed;
static CuptiClock user_clock;
static struct pending *oldest, **newest = &oldest;
static struct buffer open_buffer;
static size_t dropped, records_seen;
static int ever_requested, clock_registrations, collector_runs;
static _Atomic(int) exited, forked;

static void die(const char* why) {
  fprintf(stderr, "fake CUPTI: %s\n", why);
  abort();
}

static uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

static void check_alive(void) {
  if (exited) die("used after its exit handler ran");
}

static uint64_t read_clock(clockid_t id) {
  struct timespec now;
  clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The registered clock minus CLOCK_MONOTONIC, which is 0 for a clock that is CLOCK_MONOTONIC. */
static uint64_t clock_offset(void) {
  if (!user_clock) return read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC);
  const uint64_t before = read_clock(CLOCK_MONOTONIC), clock = user_clock();
  const uint64_t after = read_clock(CLOCK_MONOTONIC);
  return (clock >= before && clock <= after ? 0 : clock - before) +
         number("FAKE_CUPTI_CLOCK_SKEW_NS", 0);
}

/* ---- buffers; all with the lock held, which is released around the caller's callbacks ---- */

static void request_buffer(void) {
  struct buffer fresh = {0};
  size_t max_records = 0;
  const CuptiBufferRequested request = on_requested;
  pthread_mutex_unlock(&lock);
  request(&fresh.address, &fresh.size, &max_records);
  pthread_mutex_lock(&lock);
  if (!fresh.address || fresh.size < 8 * kMaxRecord) die("got no buffer");
  if ((uintptr_t)fresh.address % 8) die("buffer is not aligned");
  ever_requested = 1;
  if (open_buffer.address) { /* another thread was quicker */
    pthread_mutex_unlock(&lock);
    on_completed(NULL, 0, fresh.address, fresh.size, 0);
    pthread_mutex_lock(&lock);
  } else {
    open_buffer = fresh;
  }
}

static void hand_over(void) {
  const struct buffer done = open_buffer;
  const CuptiBufferCompleted completed = on_completed;
  open_buffer = (struct buffer){0};
  if (!done.address) return;
  pthread_mutex_unlock(&lock);
  memset(done.address + done.used, 0xa5, done.size - done.used);
  completed(NULL, 0, done.address, done.size, done.used);
  pthread_mutex_lock(&lock);
}

static int later(const void* a, const void* b) {
  const struct pending *x = *(struct pending* const*)a, *y = *(struct pending* const*)b;
  return x->end < y->end ? -1 : x->end > y->end;
}

/* Takes what has ended by now out of the list, in the order of its end. */
static struct pending** take_ended(size_t* count) {
  const uint64_t now = read_clock(CLOCK_MONOTONIC);
  struct pending** ended = NULL;
  size_t room = 0;
  *count = 0;
  for (struct pending** at = &oldest; *at;) {
    struct pending* one = *at;
    if (one->end > now) {
      at = &one->next;
      continue;
    }
    if (!(*at = one->next)) newest = at;
    if (*count == room) ended = realloc(ended, (room = room ? 2 * room : 256) * sizeof *ended);
    ended[(*count)++] = one;
  }
  if (*count) qsort(ended, *count, sizeof *ended, later);
  return ended;
}

static void collect(void) {
  const uint64_t drop_every = number("FAKE_CUPTI_DROP_EVERY", 0);
  size_t count;
  struct pending** ended = take_ended(&count);
  for (size_t i = 0; i < count; ++i) {
    if (drop_every && ++records_seen % drop_every == 0) {
      ++dropped;
    } else {
      while (!open_buffer.address || open_buffer.size - open_buffer.used < ended[i]->size) {
        hand_over();
        if (!open_buffer.address) request_buffer();
      }
      memcpy(open_buffer.address + open_buffer.used, &ended[i]->record, ended[i]->size);
      open_buffer.used += ended[i]->size;
    }
    free(ended[i]);
  }
  free(ended);
}

static void* collector(void* unused) {
  const struct timespec pause = {0, 1000000};
  pthread_setname_np(pthread_self(), "fake-cupti");
  while (!exited) {
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&delivery);
    pthread_mutex_lock(&lock);
    if (on_completed) collect();
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&delivery);
  }
  return unused;
}

/* ---- what the driver tells ---- */

static void on_call(int site, struct fake_call* call, int* result) {
  const CuptiCallback told = callback;
  if (!told || !call_enabled[call->domain][call->cbid]) return;
  const struct CuptiCallbackData data = {
      .site = (uint32_t)site,
      .function_name = call->name,
      .return_value = result,
      .symbol_name = call->symbol,
      .context_uid = 1,
      .correlation_data = &call->data,
      .correlation_id = call->correlation,
  };
  told(callback_user, call->domain, call->cbid, &data);
}

static void on_work(const struct fake_work* work) {
  if (!kind_enabled[work->kind]) return;
  struct pending* one = malloc(sizeof *one);
  if (!one) abort();
  one->size = make_record(work, &one->record, clock_offset());
  one->end = work->end;
  one->next = NULL;
  pthread_mutex_lock(&lock);
  if (!open_buffer.address) request_buffer();
  *newest = one;
  newest = &one->next;
  pthread_mutex_unlock(&lock);
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
  if (callback && !forked) die("still subscribed when its exit handler ran");
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

EXPORT CuptiResult cuptiSubscribe(CuptiSubscriber* subscriber, CuptiCallback wanted, void* user) {
  check_alive();
  usleep((useconds_t)number("FAKE_CUPTI_SUBSCRIBE_MS", 0) * 1000);
  check_alive();
  const CuptiResult result = (CuptiResult)number("FAKE_CUPTI_SUBSCRIBE_RESULT", 0);
  if (result) return result;
  if (callback) return kCuptiMultipleSubscribers;
  if (listen_to_driver() != kCuptiSuccess) return kCuptiUnknown;
  callback_user = user;
  callback = wanted;
  *subscriber = (CuptiSubscriber)&callback;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiUnsubscribe(CuptiSubscriber subscriber) {
  check_alive();
  if (!callback || subscriber != (CuptiSubscriber)&callback)
    die("unsubscribed without a subscription");
  callback = NULL;
  memset((void*)call_enabled, 0, sizeof call_enabled);
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiEnableCallback(uint32_t enable, CuptiSubscriber subscriber, uint32_t domain,
                                       uint32_t cbid) {
  check_alive();
  if (subscriber != (CuptiSubscriber)&callback || !callback) return kCuptiInvalidParameter;
  if (domain < 1 || domain > 2 || cbid == 0 || cbid >= 830) return kCuptiInvalidParameter;
  call_enabled[domain][cbid] = enable != 0;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityRegisterCallbacks(CuptiBufferRequested requested,
                                                  CuptiBufferCompleted completed) {
  check_alive();
  if (!requested || !completed) return kCuptiInvalidParameter;
  pthread_mutex_lock(&lock);
  on_requested = requested;
  on_completed = completed;
  pthread_mutex_unlock(&lock);
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityEnable(uint32_t kind) {
  check_alive();
  if (kind >= kKinds) return kCuptiInvalidParameter;
  const CuptiResult result = (CuptiResult)number("FAKE_CUPTI_ENABLE_RESULT", 0);
  if (result && kind == kCuptiKindConcurrentKernel) return result;
  if (!on_requested) die("activity enabled before the buffer callbacks were registered");
  pthread_mutex_lock(&lock);
  if (!collector_runs) {
    pthread_t thread;
    collector_runs = pthread_create(&thread, NULL, collector, NULL) == 0;
    if (!collector_runs) abort();
    pthread_detach(thread);
  }
  pthread_mutex_unlock(&lock);
  kind_enabled[kind] = 1;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityDisable(uint32_t kind) {
  check_alive();
  if (kind >= kKinds) return kCuptiInvalidParameter;
  kind_enabled[kind] = 0;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityFlushAll(uint32_t flag) {
  check_alive();
  pthread_mutex_lock(&delivery);
  pthread_mutex_lock(&lock);
  if (!ever_requested) die("flushed before a buffer was asked for: this would hang");
  collect();
  if (open_buffer.used > 0 || flag == kCuptiFlushForced) hand_over();
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

EXPORT CuptiResult cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream,
                                                     size_t* count) {
  (void)context, (void)stream;
  pthread_mutex_lock(&lock);
  *count = dropped;
  dropped = 0;
  pthread_mutex_unlock(&lock);
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiActivityRegisterTimestampCallback(CuptiClock clock) {
  check_alive();
  if (++clock_registrations > 1) die("a clock was registered twice");
  user_clock = clock;
  return kCuptiSuccess;
}

EXPORT CuptiResult cuptiFinalize(void) {
  die("finalized: CUDA graphs do not survive that");
  return kCuptiSuccess;
}
