// What is read of a torch process as a whole, for the recording's facts: torch's own memory of its
// compiles, and the code they generated. It can be read only while the process lives, so it is read
// again after compiles, and what was read last stands for a process that has ended. While we record, a
// thread of its own reads: events never wait for it.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>

#include "symbolizer/recording/writer.h"
#include "user/generated/generated_file.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

class TorchFacts {
 public:
  // Something of a compile happened: what was read is out of date.
  void compiled(std::uint64_t now_ns);
  // A compile is over, and torch notes it. The process may end at any moment: the history is read at once,
  // unless that would take more than a tenth of a CPU.
  void compile_ended(std::uint64_t now_ns);
  // Reads again what is out of date, not too often: some 30 ms for the history once a second, and some
  // 100 ms for the generated code every five to ten.
  void refresh(const PythonRuntime& python, std::uint64_t now_ns);
  // Reads the history, and comes back with it.
  void refresh_at_attach(RemoteObjects& objects, const PythonRuntime& python);
  // Reads everything once more, if the process still lives.
  void refresh_at_end(RemoteObjects& objects, const PythonRuntime& python);

  // The history alone when the recording begins; that and the generated code when it ends.
  void write_at_attach(pid_t pid, RecordingWriter& writer) const;
  void write_at_end(pid_t pid, RecordingWriter& writer) const;

 private:
  struct Reading {
    std::string history;  // "": not asked, or not readable
    std::optional<GeneratedCode> generated;
    std::uint64_t history_took_ns = 0;
    std::uint64_t history_read_ns = 0;  // when that was
  };
  static Reading read(RemoteObjects& objects, const PythonRuntime& python, bool history,
                      bool generated, bool at_end);
  void take(Reading reading);
  void write_history(const char* when, pid_t pid, RecordingWriter& writer) const;

  std::string history_;  // JSON
  bool history_is_old_ = true;
  std::uint64_t next_history_ns_ = 0;
  std::uint64_t soonest_history_ns_ = 0;  // after a compile
  GeneratedCode generated_;
  bool generated_is_old_ = true;
  std::uint64_t next_generated_ns_ = 0;
  std::uint64_t last_compile_ns_ = 0;
  std::future<Reading> reading_;
};

}  // namespace dynprof
