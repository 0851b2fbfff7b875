/* What the fake CUPTI keeps for each subscriber, and how its records come back: at the first record it asks for a buffer,
 * and a thread of its own hands over full ones. For libcupti.c alone. */
#ifndef FAKE_CUPTI_BUFFERS_H
#define FAKE_CUPTI_BUFFERS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti/cupti_abi.h"
#include "tests/fakes/cupti_records.h"

enum { kKinds = 64, kSubscribers = 4 };

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
/* The first one is of the functions without _v2, subscribed or not. */
static struct subscriber {
  _Atomic(CuptiCallback) callback;
  _Atomic(int) taken;
  int allows_others;
  char name[64];
  void* user;
  _Atomic(uint8_t) call_enabled[3][kCuptiMaxCbid];
  _Atomic(uint8_t) kind_enabled[kKinds];
  CuptiBufferRequested on_requested;
  CuptiBufferCompleted on_completed;
  CuptiOwnBufferRequested on_own_requested;
  CuptiOwnBufferCompleted on_own_completed;
  CuptiClock clock;
  struct pending *oldest, **newest;
  struct buffer open_buffer;
  size_t dropped;
} subscribers[kSubscribers], * const global = subscribers;
static size_t records_seen;
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
static uint64_t clock_offset(const struct subscriber* s) {
  if (!s->clock) return read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC);
  const uint64_t before = read_clock(CLOCK_MONOTONIC), clock = s->clock();
  const uint64_t after = read_clock(CLOCK_MONOTONIC);
  return (clock >= before && clock <= after ? 0 : clock - before) +
         number("FAKE_CUPTI_CLOCK_SKEW_NS", 0);
}

/* ---- buffers; all with the lock held, which is released around the caller's callbacks ---- */

static void complete(const struct subscriber* s, const struct buffer* done) {
  const CuptiOwnBufferCompleted own = s->on_own_completed;
  const CuptiBufferCompleted completed = s->on_completed;
  pthread_mutex_unlock(&lock);
  memset(done->address + done->used, 0xa5, done->size - done->used);
  if (own)
    own(done->address, done->size, done->used, NULL);
  else
    completed(NULL, 0, done->address, done->size, done->used);
  pthread_mutex_lock(&lock);
}

static void request_buffer(struct subscriber* s) {
  struct buffer fresh = {0};
  size_t max_records = 0;
  const CuptiOwnBufferRequested own = s->on_own_requested;
  const CuptiBufferRequested request = s->on_requested;
  pthread_mutex_unlock(&lock);
  if (own)
    own(&fresh.address, &fresh.size, &max_records, NULL);
  else
    request(&fresh.address, &fresh.size, &max_records);
  pthread_mutex_lock(&lock);
  if (!fresh.address || fresh.size < 8 * kMaxRecord) die("got no buffer");
  if ((uintptr_t)fresh.address % 8) die("buffer is not aligned");
  ever_requested = 1;
  if (s->open_buffer.address) /* another thread was quicker */
    complete(s, &fresh);
  else
    s->open_buffer = fresh;
}

static void hand_over(struct subscriber* s) {
  const struct buffer done = s->open_buffer;
  s->open_buffer = (struct buffer){0};
  if (done.address) complete(s, &done);
}

static int later(const void* a, const void* b) {
  const struct pending *x = *(struct pending* const*)a, *y = *(struct pending* const*)b;
  return x->end < y->end ? -1 : x->end > y->end;
}

/* Takes what has ended by now out of the list, in the order of its end. */
static struct pending** take_ended(struct subscriber* s, size_t* count) {
  const uint64_t now = read_clock(CLOCK_MONOTONIC);
  struct pending** ended = NULL;
  size_t room = 0;
  *count = 0;
  for (struct pending** at = &s->oldest; *at;) {
    struct pending* one = *at;
    if (one->end > now) {
      at = &one->next;
      continue;
    }
    if (!(*at = one->next)) s->newest = at;
    if (*count == room) ended = realloc(ended, (room = room ? 2 * room : 256) * sizeof *ended);
    ended[(*count)++] = one;
  }
  if (*count) qsort(ended, *count, sizeof *ended, later);
  return ended;
}

static void collect(struct subscriber* s) {
  const uint64_t drop_every = number("FAKE_CUPTI_DROP_EVERY", 0);
  size_t count;
  struct pending** ended = take_ended(s, &count);
  for (size_t i = 0; i < count; ++i) {
    if (drop_every && ++records_seen % drop_every == 0) {
      ++s->dropped;
    } else {
      while (!s->open_buffer.address ||
             s->open_buffer.size - s->open_buffer.used < ended[i]->size) {
        hand_over(s);
        if (!s->open_buffer.address) request_buffer(s);
      }
      memcpy(s->open_buffer.address + s->open_buffer.used, &ended[i]->record, ended[i]->size);
      s->open_buffer.used += ended[i]->size;
    }
    free(ended[i]);
  }
  free(ended);
}

static int wants_records(const struct subscriber* s) {
  return s->on_completed || s->on_own_completed;
}

static void* collector(void* unused) {
  const struct timespec pause = {0, 1000000};
  pthread_setname_np(pthread_self(), "fake-cupti");
  while (!exited) {
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&delivery);
    pthread_mutex_lock(&lock);
    for (struct subscriber* s = subscribers; s < subscribers + kSubscribers; ++s)
      if (wants_records(s)) collect(s);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&delivery);
  }
  return unused;
}

static void keep_record(struct subscriber* s, const struct fake_work* work) {
  struct pending* one = malloc(sizeof *one);
  if (!one) abort();
  one->size = make_record(work, &one->record, clock_offset(s));
  one->end = work->end;
  one->next = NULL;
  pthread_mutex_lock(&lock);
  if (!s->open_buffer.address) request_buffer(s);
  if (!s->oldest) s->newest = &s->oldest;
  *s->newest = one;
  s->newest = &one->next;
  pthread_mutex_unlock(&lock);
}

#endif
