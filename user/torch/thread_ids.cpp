#include "user/torch/thread_ids.h"

#include "user/target/process.h"

namespace dynprof {

ThreadId ThreadIds::of(pid_t tid, RecordingWriter& writer) {
  auto [at, added] = ids_.try_emplace(tid, 0);
  if (added) {
    Thread thread;
    thread.pid = pid_;
    thread.tid = tid;
    const std::string comm = read_comm(pid_, tid);
    thread.comm = writer.string(comm.empty() && tid == pid_ ? last_known_comm_ : comm);
    at->second = writer.thread(thread);
  }
  return at->second;
}

}  // namespace dynprof
