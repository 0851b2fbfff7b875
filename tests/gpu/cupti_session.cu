// What CUPTI costs a launch while it is on, and afterwards, with and without cuptiFinalize; and whether launching threads
// survive that.
//
//   cupti_session LIBCUPTI                  a table: nanoseconds of a launch, of a call that starts nothing
//                                           (cudaStreamIsCapturing), and of a launch of a graph with 20 kernels
//   cupti_session LIBCUPTI stress WAY N     six threads launch while N sessions begin and end. WAY: plain, no finalize,
//                                           as the library does it; early, the first session begins before there is a
//                                           context; freed, buffers are freed when CUPTI returns them; unforced, the last
//                                           flush is not forced; exit, finalize at the exit of a call, as NVIDIA's
//                                           documentation asks; after
//
// Built and run by check.sh where there is nvcc.
#include <cuda_runtime.h>
#include <cupti.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

enum class Finalize { kNo, kAtExitOfCall, kAfterwards };

struct Way {
  const char* name;
  bool calls;  // callbacks of CUDA calls
  std::vector<CUpti_ActivityKind> kinds;
  Finalize finalize = Finalize::kNo;
  bool of_context = false;  // the kinds are enabled in the current context alone
  bool unforced = false;    // the last flush
  bool early = false;
  bool activity = true;  // its buffers and its clock are registered
};

constexpr auto kKernels = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
constexpr auto kCopies = CUPTI_ACTIVITY_KIND_MEMCPY;
constexpr auto kSets = CUPTI_ACTIVITY_KIND_MEMSET;
constexpr auto kWaits = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
const std::vector<CUpti_ActivityKind> kDefault = {kKernels, kCopies, kSets};
const std::vector<CUpti_ActivityKind> kAll = {kKernels, kCopies, kSets, kWaits};
// cudaLaunchKernel, LaunchKernelExC, GraphLaunch, copies, sets and waits; and the driver's.
constexpr std::array kRuntimeCalls = {211, 430, 311, 41, 51, 131, 165, 137, 147};
constexpr std::array kDriverCalls = {307, 652, 514, 277, 279, 281, 216};

void check(int result, const char* what) {
  if (result == 0) return;
  std::printf("%s failed: %d\n", what, result);
  std::fflush(stdout);
  _exit(1);
}
#define CHECK(call) check(static_cast<int>(call), #call)

struct Cupti {
#define FUNCTION(name) decltype(&::name) name = nullptr;
#define FUNCTIONS(X)                                                                   \
  X(cuptiSubscribe)                                                                    \
  X(cuptiUnsubscribe)                                                                  \
  X(cuptiEnableCallback)                                                               \
  X(cuptiActivityEnable)                                                               \
  X(cuptiActivityDisable) X(cuptiActivityEnableContext) X(cuptiActivityDisableContext) \
      X(cuptiActivityRegisterCallbacks) X(cuptiActivityFlushAll) X(cuptiFinalize)      \
          X(cuptiActivityRegisterTimestampCallback) X(cuptiActivityGetNextRecord)
  FUNCTIONS(FUNCTION)
  explicit Cupti(const char* path) {
    void* library = dlopen(path, RTLD_NOW);
    if (library == nullptr) check(1, dlerror());
#define FIND(name) \
  if (!(name = reinterpret_cast<decltype(name)>(dlsym(library, #name)))) check(1, #name);
    FUNCTIONS(FIND)
  }
};
Cupti* cupti;

CUpti_SubscriberHandle subscriber;
std::atomic<long> records{0};
std::atomic<int> finalize_asked{0}, finalized{0};

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId, const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (call->callbackSite != CUPTI_API_EXIT || domain != CUPTI_CB_DOMAIN_RUNTIME_API) return;
  int asked = 1;
  if (!finalize_asked.compare_exchange_strong(asked, 0)) return;
  cupti->cuptiFinalize();
  finalized = 1;
}

// CUPTI may still write into a buffer that a forced flush returned: they are kept.
std::mutex buffers_lock;
std::vector<std::uint8_t*> free_buffers;
bool free_at_once = false;

void CUPTIAPI lend(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  const std::lock_guard lock(buffers_lock);
  *size = 1 << 20;
  *most = 0;
  if (free_buffers.empty()) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
    return;
  }
  *buffer = free_buffers.back();
  free_buffers.pop_back();
}

void CUPTIAPI take_back(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                        std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (valid != 0 && cupti->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    ++records;
  if (free_at_once) return std::free(buffer);
  const std::lock_guard lock(buffers_lock);
  free_buffers.push_back(buffer);
}

// Where it was, by module and offset: libcupti has no symbols.
void on_crash(int signal) {
  std::array<void*, 64> frames;
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), 1);
  _exit(128 + signal);
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void enable_calls(bool enable) {
  for (const int call : kRuntimeCalls)
    cupti->cuptiEnableCallback(enable, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, call);
  for (const int call : kDriverCalls)
    cupti->cuptiEnableCallback(enable, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, call);
}

// This program is linked without the driver.
CUcontext current_context() {
  CUcontext context = nullptr;
  void* get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxGetCurrent");
  if (get != nullptr) reinterpret_cast<CUresult (*)(CUcontext*)>(get)(&context);
  return context;
}

void begin(const Way& way) {
  static bool has_clock = false;
  CHECK(cupti->cuptiSubscribe(&subscriber, on_call, nullptr));
  if (way.activity && !has_clock) CHECK(cupti->cuptiActivityRegisterTimestampCallback(now_ns));
  has_clock = way.finalize == Finalize::kNo;
  if (way.activity) CHECK(cupti->cuptiActivityRegisterCallbacks(lend, take_back));
  for (const CUpti_ActivityKind kind : way.kinds)
    CHECK(way.of_context ? cupti->cuptiActivityEnableContext(current_context(), kind)
                         : cupti->cuptiActivityEnable(kind));
  if (way.calls) enable_calls(true);
}

// `others_call`: a thread that makes CUDA calls need not be this one.
void end(const Way& way, bool others_call) {
  const bool at_exit = way.finalize == Finalize::kAtExitOfCall;
  if (!at_exit) enable_calls(false);
  if (way.activity) cupti->cuptiActivityFlushAll(way.unforced ? 0 : 1);
  for (const CUpti_ActivityKind kind : way.kinds)
    way.of_context ? cupti->cuptiActivityDisableContext(current_context(), kind)
                   : cupti->cuptiActivityDisable(kind);
  if (!at_exit) {
    CHECK(cupti->cuptiUnsubscribe(subscriber));
    if (way.finalize == Finalize::kAfterwards) CHECK(cupti->cuptiFinalize());
    return;
  }
  finalized = 0;
  finalize_asked = 1;
  if (!others_call) CHECK(cudaDeviceSynchronize());
  while (!finalized) usleep(100);
}

__global__ void count(unsigned long long* counter) {
  if (threadIdx.x == 0) atomicAdd(counter, 1ull);
}

struct Work {
  unsigned long long* counter = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;

  Work() {
    CHECK(cudaMalloc(&counter, sizeof *counter));
    CHECK(cudaMemset(counter, 0, sizeof *counter));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t captured;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 20; ++i) launch();
    CHECK(cudaStreamEndCapture(stream, &captured));
    CHECK(cudaGraphInstantiate(&graph, captured, 0));
  }
  void launch() const { count<<<1, 32, 0, stream>>>(counter); }
  void launch_graph() const { CHECK(cudaGraphLaunch(graph, stream)); }
};

template <class Call>
double median_ns(const Work& work, int calls, const Call& call) {
  std::array<double, 15> times;
  for (double& time : times) {
    const std::uint64_t began = now_ns();
    for (int i = 0; i < calls; ++i) call();
    time = static_cast<double>(now_ns() - began) / calls;
    CHECK(cudaStreamSynchronize(work.stream));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void measure(const Way& way) {
  const Work work;
  struct Row {
    double launch, other, graph;
  };
  const auto row = [&]() -> Row {
    cudaStreamCaptureStatus status;
    return {median_ns(work, 500, [&] { work.launch(); }),
            median_ns(work, 500, [&] { CHECK(cudaStreamIsCapturing(work.stream, &status)); }),
            median_ns(work, 50, [&] { work.launch_graph(); })};
  };
  row();  // the first ones are slow
  const Row before = row();
  begin(way);
  const Row on = row();
  end(way, false);
  const Row after = row();
  std::printf("%-54s", way.name);
  for (double Row::*column : {&Row::launch, &Row::other, &Row::graph})
    std::printf("   %7.0f %7.0f %7.0f", before.*column, on.*column, after.*column);
  std::printf("\n");
  std::fflush(stdout);
}

int stress(const Way& way, int sessions) {
  std::atomic<bool> enough{false};
  std::atomic<int> ready{0};
  std::atomic<long> launches{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      const Work work;
      unsigned long long made = 0;
      ++ready;
      while (!enough) {
        for (int k = 0; k < 20; ++k) work.launch();
        work.launch_graph();
        made += 40;
        CHECK(cudaGetLastError());
        if (made % 2000 == 0) CHECK(cudaStreamSynchronize(work.stream));
      }
      CHECK(cudaStreamSynchronize(work.stream));
      unsigned long long counted = 0;
      CHECK(cudaMemcpy(&counted, work.counter, sizeof counted, cudaMemcpyDeviceToHost));
      if (counted != made) check(1, "a kernel that was launched did not run: this");
      launches += static_cast<long>(made);
    });
  while (!way.early && ready < 6) usleep(1000);
  for (int i = 0; i < sessions; ++i) {
    begin(way);
    usleep(30'000);
    end(way, true);
    usleep(20'000);
  }
  enough = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%s: %d sessions, %ld kernels, all of them ran\n", way.name, sessions,
              launches.load());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2 && count != 5) return 2;
  cupti = new Cupti(arguments[1]);
  if (count == 5) {
    const std::string way = arguments[3];
    const Finalize finalize = way == "exit"    ? Finalize::kAtExitOfCall
                              : way == "after" ? Finalize::kAfterwards
                                               : Finalize::kNo;
    const Way stressed{.name = arguments[3],
                       .calls = true,
                       .kinds = kDefault,
                       .finalize = finalize,
                       .unforced = way == "unforced",
                       .early = way == "early"};
    free_at_once = way == "freed";
    std::signal(SIGSEGV, on_crash);
    return stress(stressed, std::atoi(arguments[4]));
  }
  std::printf("%-54s", "");
  for (const char* column : {"launch", "other", "graph"})
    std::printf("   %7s %7s %7s", column, "on", "after");
  std::printf("\n");
  const Way ways[] = {
      {.name = "subscription without buffers and clock",
       .calls = false,
       .kinds = {},
       .activity = false},
      {"subscription alone", false, {}},
      {"callbacks", true, {}},
      {"kernels", false, {kKernels}},
      {"copies", false, {kCopies}},
      {"memsets", false, {kSets}},
      {"waits", false, {kWaits}},
      {"callbacks, kernels, copies, memsets", true, kDefault},
      {"callbacks, kernels, copies, memsets, waits", true, kAll},
      {"kernels of the context", false, {kKernels}, Finalize::kNo, true},
      {"callbacks, kernels, copies, memsets, waits; finalized", true, kAll,
       Finalize::kAtExitOfCall},
  };
  // CUPTI leaves something behind: each in a process of its own.
  for (const Way& way : ways) {
    std::fflush(stdout);
    if (const pid_t child = fork(); child == 0) {
      measure(way);
      _exit(0);
    } else {
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) std::printf("%-54s failed\n", way.name);
    }
  }
  return 0;
}
