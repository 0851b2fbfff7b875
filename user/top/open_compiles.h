// The compiles that are open in a process at this moment, and the threads that wait to begin one.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "user/live/compile_lock.h"
#include "user/live/compile_now.h"
#include "user/live/graph_position.h"
#include "user/live/thread_moment.h"
#include "user/top/finished_rows.h"
#include "user/top/reading.h"

namespace dynprof {

class OpenCompiles {
 public:
  explicit OpenCompiles(TargetView& view) : view_(view), torch_(view), lock_(view), graphs_(view) {}

  const TorchReader& torch() const { return torch_; }
  // `finished` names the functions of backwards, which torch keeps for their forward only.
  std::vector<OpenCompile> read(const std::map<pid_t, std::uint64_t>& states,
                                const FinishedRows& finished);

 private:
  static constexpr std::size_t kMaxOpen = 64;
  static constexpr std::size_t kMaxWaiting = 32;

  void read_compile(pid_t tid, std::uint64_t tstate, const FinishedRows& finished);
  void read_waiting(pid_t tid, std::uint64_t tstate, std::uint64_t owner);
  void set_function(OpenCompile& compile, const ThreadMoment& moment, const FinishedRows& finished);
  void set_wait(OpenCompile& compile, const RemoteStack& stack);
  TopPlace caller(const RemoteStack& stack);
  std::string thread_name(std::uint64_t pthread);
  // pthread_self() of a thread, and the thread of one; 0: not known.
  std::uint64_t pthread_of(std::uint64_t tstate);
  pid_t thread_of(std::uint64_t pthread);
  void learn_threads();

  TargetView& view_;
  TorchReader torch_;
  CompileLock lock_;
  GraphPositions graphs_;
  std::vector<OpenCompile> found_;
  const std::map<pid_t, std::uint64_t>* states_ = nullptr;
  bool learnt_ = false;                                        // in this reading
  std::unordered_map<std::uint64_t, std::uint64_t> pthreads_;  // by thread state
  std::unordered_map<std::uint64_t, std::string> names_;       // by pthread_self()
};

}  // namespace dynprof
