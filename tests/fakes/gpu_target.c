/* A CUDA program without a GPU, driven by lines on stdin; it answers each with one line that begins
 * with the verb. First argument: a library to load as torch does libcupti ("-" for none); the fakes lie
 * beside this program. Each further argument is done as if it had come from stdin.
 *
 *   launch N | driver N | names N | copy N | peer N | set N | graph N KERNELS | sync
 *   storm THREADS N PAUSE_US   each thread launches N kernels on a stream of its own
 *   background THREADS PAUSE_US   as storm, until the end of the program
 *   fork N      a child launches N and exits; what became of it
 *   second on|off      another CUPTI client
 *   share NAME | alone NAME   a CUPTI client of this name that records kernels, and allows others or does not
 *   leave       it ends; how many kernels it was told of
 *   empty       subscribes a CUPTI client whose callbacks do nothing
 *   log PATH    the driver's own log of what happened
 *   bench N     ns per launch
 *   closefds    closes all descriptors but 0-2, and opens as many of /dev/null
 *   threads     the names of all threads     exit [RC] */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cupti/cupti_abi.h"
#include "tests/fakes/fake_cuda.h"

static struct fake_function plain = {NULL, "_Z5plainPf", 3000};
static const dim3_c kGrid = {4, 2, 1}, kBlock = {128, 1, 1};

static void launch(CUstream stream) { cudaLaunchKernel(&plain, kGrid, kBlock, NULL, 64, stream); }

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- threads ---- */

struct storm {
  long launches, pause_us; /* launches < 0: for ever */
};

static void* storm(void* argument) {
  const struct storm* one = argument;
  CUstream stream;
  cuStreamCreate(&stream, 0);
  uint64_t next = now_ns();
  for (long i = 0; one->launches < 0 || i < one->launches; ++i) {
    launch(stream);
    if (!one->pause_us) continue;
    /* Sleeps are late by 50 us and more: the rate is kept by launching late ones at once. */
    next += (uint64_t)one->pause_us * 1000;
    const uint64_t now = now_ns();
    if (next > now + 100000) usleep((useconds_t)((next - now) / 1000));
  }
  cudaStreamSynchronize(stream);
  return NULL;
}

static void run_storm(int threads, long launches, long pause_us) {
  pthread_t started[64];
  struct storm one = {launches, pause_us};
  for (int i = 0; i < threads && i < 64; ++i) pthread_create(&started[i], NULL, storm, &one);
  for (int i = 0; i < threads && i < 64; ++i) pthread_join(started[i], NULL);
}

static void run_background(int threads, long pause_us) {
  static struct storm one;
  one = (struct storm){-1, pause_us};
  for (int i = 0; i < threads; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, storm, &one);
    pthread_detach(thread);
  }
}

/* ---- other CUPTI clients ---- */

static void* cupti;
static CuptiSubscriber other;

static void ignore_call(void* user, uint32_t domain, uint32_t cbid, const void* data) {
  (void)user, (void)domain, (void)cbid, (void)data;
}
static void lend(uint8_t** buffer, size_t* size, size_t* records) {
  *buffer = aligned_alloc(8, *size = 1 << 20);
  *records = 0;
}
static void take_back(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size, (void)valid;
  free(buffer);
}

static int subscribe(int with_activity) {
  CuptiResult (*subscribe_to)(CuptiSubscriber*, CuptiCallback, void*);
  CuptiResult (*enable)(uint32_t, CuptiSubscriber, uint32_t, uint32_t);
  CuptiResult (*activity)(uint32_t);
  CuptiResult (*callbacks)(CuptiBufferRequested, CuptiBufferCompleted);
  *(void**)&subscribe_to = dlsym(cupti, "cuptiSubscribe");
  *(void**)&enable = dlsym(cupti, "cuptiEnableCallback");
  *(void**)&activity = dlsym(cupti, "cuptiActivityEnable");
  *(void**)&callbacks = dlsym(cupti, "cuptiActivityRegisterCallbacks");
  const CuptiResult result = subscribe_to(&other, ignore_call, NULL);
  if (result || !with_activity) return result;
  enable(1, other, kCuptiDomainRuntime, 211);
  enable(1, other, kCuptiDomainDriver, 307);
  callbacks(lend, take_back);
  return activity(kCuptiKindConcurrentKernel);
}

static int unsubscribe(void) {
  CuptiResult (*end)(CuptiSubscriber);
  *(void**)&end = dlsym(cupti, "cuptiUnsubscribe");
  return end(other);
}

/* One of several, from CUDA 13.3 on. */
static CuptiSubscriber sharing;
static _Atomic(long) shared_kernels;

static void lend_own(uint8_t** buffer, size_t* size, size_t* records, void* info) {
  (void)info;
  lend(buffer, size, records);
}
static void take_back_own(uint8_t* buffer, size_t size, size_t valid, void* info) {
  (void)size, (void)info;
  CuptiResult (*next)(CuptiSubscriber, uint8_t*, size_t, void**);
  *(void**)&next = dlsym(cupti, "cuptiActivityGetNextRecord_v2");
  for (void* record = NULL; next(sharing, buffer, valid, &record) == kCuptiSuccess;)
    ++shared_kernels;
  free(buffer);
}

static int share(const char* name, uint8_t allow_several) {
  CuptiResult (*subscribe_to)(CuptiSubscriber*, CuptiCallback, void*,
                              struct CuptiSubscriberParams*);
  CuptiResult (*activity)(CuptiSubscriber, uint32_t, void*);
  CuptiResult (*callbacks)(CuptiSubscriber, CuptiOwnBufferRequested, CuptiOwnBufferCompleted);
  *(void**)&subscribe_to = dlsym(cupti, "cuptiSubscribe_v2");
  *(void**)&activity = dlsym(cupti, "cuptiActivityEnable_v2");
  *(void**)&callbacks = dlsym(cupti, "cuptiActivityRegisterCallbacks_v2");
  struct CuptiSubscriberParams wanted = {
      .bytes = sizeof wanted, .name = name, .allow_several = allow_several};
  const CuptiResult result = subscribe_to(&sharing, ignore_call, NULL, &wanted);
  if (result) return result;
  callbacks(sharing, lend_own, take_back_own);
  return activity(sharing, kCuptiKindConcurrentKernel, NULL);
}

static long leave(void) {
  CuptiResult (*end)(CuptiSubscriber);
  CuptiResult (*flush)(uint32_t);
  CuptiResult (*disable)(CuptiSubscriber, uint32_t, void*);
  *(void**)&end = dlsym(cupti, "cuptiUnsubscribe");
  *(void**)&flush = dlsym(cupti, "cuptiActivityFlushAll");
  *(void**)&disable = dlsym(cupti, "cuptiActivityDisable_v2");
  flush(0);
  disable(sharing, kCuptiKindConcurrentKernel, NULL);
  end(sharing);
  return shared_kernels;
}

/* ---- verbs ---- */

static void launch_names(long count) {
  for (long i = 0; i < count; ++i) {
    char* name;
    if (asprintf(&name, "_Z6named_%ldPf", i) < 0) abort();
    struct fake_function* f = malloc(sizeof *f);
    *f = (struct fake_function){NULL, name, 2000};
    const CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    cuLaunchKernelEx(&config, f, NULL, NULL);
  }
}

static int launch_in_child(long count) {
  const pid_t child = fork();
  if (child == 0) {
    for (long i = 0; i < count; ++i) launch(NULL);
    exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

static void bench(long count) {
  const uint64_t began = now_ns();
  for (long i = 0; i < count; ++i) launch(NULL);
  printf("bench %.1f\n", (double)(now_ns() - began) / (double)count);
}

static void close_descriptors(void) {
  for (int fd = 3; fd < 64; ++fd) close(fd);
  for (int fd = 3; fd < 64; ++fd)
    if (open("/dev/null", O_WRONLY) < 0) abort();
}

static void list_threads(void) {
  DIR* folder = opendir("/proc/self/task");
  printf("threads");
  for (struct dirent* entry; (entry = readdir(folder));) {
    char path[300], name[32] = "";
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE* file = fopen(path, "r");
    if (file && fscanf(file, "%31s", name) == 1) printf(" %s", name);
    if (file) fclose(file);
  }
  closedir(folder);
  printf("\n");
}

static void graph(long count, long kernels) {
  static struct fake_function node = {NULL, "_Z4nodePf", 1500};
  struct fake_graph one = {77, (uint32_t)kernels, &node};
  for (long i = 0; i < count; ++i) cudaGraphLaunch(&one, NULL);
}

static void obey(const char* line) {
  char verb[32] = "", word[4096] = "";
  long a = 0, b = 0, c = 0;
  sscanf(line, "%31s", verb);
  sscanf(line, "%*s %4095s", word);
  sscanf(line, "%*s %ld %ld %ld", &a, &b, &c);
#define IS(text) (!strcmp(verb, text))
  if (IS("exit")) exit((int)a);
  if (IS("bench")) return bench(a);
  if (IS("threads")) return list_threads();
  if (IS("launch"))
    for (long i = 0; i < a; ++i) launch(NULL);
  else if (IS("driver"))
    for (long i = 0; i < a; ++i) cuLaunchKernel(&plain, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
  else if (IS("names"))
    launch_names(a);
  else if (IS("copy"))
    for (long i = 0; i < a; ++i) cudaMemcpyAsync(&a, &b, 4096, 1 + (int)(i % 3), NULL);
  else if (IS("peer"))
    for (long i = 0; i < a; ++i) cuMemcpyPeerAsync(0, NULL, 0, NULL, 512, NULL);
  else if (IS("set"))
    for (long i = 0; i < a; ++i) cudaMemsetAsync(&b, 0, 256, NULL);
  else if (IS("graph"))
    graph(a, b);
  else if (IS("sync"))
    cudaDeviceSynchronize();
  else if (IS("storm"))
    run_storm((int)a, b, c);
  else if (IS("background"))
    run_background((int)a, b);
  else if (IS("fork"))
    a = launch_in_child(a);
  else if (IS("second"))
    a = !strcmp(word, "on") ? subscribe(0) : unsubscribe();
  else if (IS("share") || IS("alone"))
    a = share(word, IS("share"));
  else if (IS("leave"))
    a = leave();
  else if (IS("empty"))
    a = subscribe(1);
  else if (IS("log"))
    a = fake_cuda_write_log(word);
  else if (IS("closefds"))
    close_descriptors();
  else
    a = -1;
  printf("%s %ld\n", verb, a);
}

int main(int argc, char** argv) {
  setlinebuf(stdout);
  cuInit(0);
  fake_cuda_log(!getenv("FAKE_CUDA_NO_LOG"));
  if (argc > 1 && strcmp(argv[1], "-") && !(cupti = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL))) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  printf("ready %d\n", getpid());
  for (int i = 2; i < argc; ++i) obey(argv[i]);
  char line[5000];
  while (fgets(line, sizeof line, stdin)) obey(line);
  return 0;
}
