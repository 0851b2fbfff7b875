// The kernels that threads compile or tune with Triton, read from the target's memory when a sample shows a thread
// in Triton's compiler. The time is in the samples; what a kernel is called is in objects of Triton's alone.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "user/live/triton_kernel.h"
#include "user/target/python_runtime.h"

namespace dynprof {

struct TritonReading {
  std::uint64_t time_ns = 0;
  pid_t tid = 0;
  TritonKernel kernel;
};

// Compilations of a process, numbered. An object of Triton's stands for each; it may be at the address of the last one of
// its thread only if that thread tuned in between, so that there was a reading without an object, or for two in a row.
class TritonCompilations {
 public:
  // 0 where there is no object.
  std::uint32_t number(pid_t tid, std::uint64_t object);

 private:
  static constexpr std::size_t kMaxThreads = 1024;
  struct Last {
    std::uint64_t object = 0;
    std::uint32_t number = 0;
  };
  std::map<pid_t, Last> last_;
  std::uint32_t count_ = 0;
};

// Whether a thread in this function compiles or tunes a kernel. The file is a path, the name without its class.
bool is_triton_work(std::string_view file, std::string_view name);

class TritonWatch {
 public:
  explicit TritonWatch(const PythonRuntime& runtime);
  ~TritonWatch();
  TritonWatch(const TritonWatch&) = delete;
  TritonWatch& operator=(const TritonWatch&) = delete;

  // The thread is in such a function. A thread of this class reads its kernel, each thread's 50 times a second at most.
  void seen(pid_t tid, std::uint64_t now_ns);
  std::vector<TritonReading> take();

 private:
  void run();

  const PythonRuntime runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::map<pid_t, std::uint64_t> asked_ns_;  // by thread: its last request
  std::vector<pid_t> wanted_;
  std::vector<TritonReading> readings_;
  std::thread thread_;
};

}  // namespace dynprof
