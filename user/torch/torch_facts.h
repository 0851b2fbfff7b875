// What is read of a torch process as a whole, for the recording's facts: torch's own memory of its
// compiles, and the code they generated. It can be read only while the process lives, so it is read
// again after compiles, and what was read last stands for a process that has ended. While we record, a
// thread of its own reads: events never wait for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <optional>
#include <string>

#include "symbolizer/recording/writer.h"
#include "user/generated/generated_file.h"
#include "user/history/compile_history.h"
#include "user/history/new_rows.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

class TorchFacts {
 public:
  // Something of a compile happened: what was read is out of date.
  void compiled(std::uint64_t now_ns);
  // From now on compiles happen without compiled() being called.
  void not_told_any_more() { told_ = false; }
  // A compile is over, and torch notes it. The process may end at any moment: that note is read at once,
  // without the rest of the history.
  void compile_ended(std::uint64_t now_ns);
  // When to look for the note of a compile that ended; UINT64_MAX: no compile did.
  std::uint64_t note_due_ns() const { return note_due_ns_; }
  // Reads it if it is time to. Some 200 small reads, by the calling thread: a thread of its own would come
  // too late for a process that exits.
  void read_note(RemoteObjects& objects, const PythonRuntime& python, std::uint64_t now_ns);
  // Reads again what is out of date: the history at most once a second, and so rarely that it takes 0.3 % of a CPU, and
  // so is the generated code. Each read holds the target's lock on its memory map for a moment, in which the
  // target may want to map or unmap. The walk of the garbage collector's rings, most of the reads, waits until
  // nothing has compiled for two seconds.
  void refresh(const PythonRuntime& python, std::uint64_t now_ns, bool compiling);
  // Reads the history, and comes back with it.
  void refresh_at_attach(RemoteObjects& objects, const PythonRuntime& python);
  // Waits for a reading that is under way. It ends soon where the process is gone.
  void stop_reading();
  // Reads everything once more, if the process still lives, but for generated code of which nothing can be new: a complete
  // look came after the last compile. `in_thread`: stop_reading() comes back with it.
  void refresh_at_end(RemoteObjects& objects, const PythonRuntime& python, bool in_thread);

  // The history alone when the recording begins; that and the generated code when it ends.
  void write_at_attach(pid_t pid, RecordingWriter& writer) const;
  void write_at_end(pid_t pid, RecordingWriter& writer) const;

 private:
  // kQuick: what is found without the garbage collector's rings.
  enum class Look : std::uint8_t { kNone, kQuick, kWhole };
  struct Wanted {
    bool history = false;
    Look generated = Look::kNone;
    std::chrono::milliseconds time{};  // CPU
    int times_longer = 1;              // by the clock
  };
  struct Reading {
    std::optional<CompileHistory> history;  // nothing: not asked, or not readable
    std::optional<GeneratedCode> generated;
    Wanted of;
    std::uint64_t history_took_ns = 0;  // CPU
    std::uint64_t took_ns = 0;          // CPU, for the generated code
  };
  static Reading read(RemoteObjects& objects, const PythonRuntime& python, Wanted wanted);
  void begin_reading(const PythonRuntime& python, Wanted wanted, bool urgent);
  Wanted wanted(std::uint64_t now_ns, bool compiling) const;
  void take(Reading reading);
  void take_history(std::optional<CompileHistory> found);
  void write_history(const char* when, pid_t pid, RecordingWriter& writer) const;

  std::optional<CompileHistory> history_;
  bool history_is_old_ = true;
  std::uint64_t next_history_ns_ = 0;
  NewRows new_rows_;
  std::deque<HistoryRow> notes_;  // that history_ does not have yet
  std::uint64_t note_due_ns_ = UINT64_MAX;
  int note_tries_ = 0;
  std::size_t ended_without_note_ = 0;  // compiles that ended since the last note was read
  GeneratedCode generated_;
  Look generated_until_now_ = Look::kNone;  // the most that was looked for since the last compile
  bool last_look_complete_ = false;
  bool told_ = true;
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t last_compile_ns_ = 0;
  bool any_ended_ = false;
  std::future<Reading> reading_;
};

}  // namespace dynprof
