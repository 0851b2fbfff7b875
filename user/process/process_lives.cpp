#include "user/process/process_lives.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <string>
#include <string_view>

#include "user/target/clock.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

// CPU time of all its threads so far, 0: it is gone.
std::uint64_t cpu_time(pid_t pid) {
  clockid_t clock = 0;
  if (clock_getcpuclockid(pid, &clock) != 0) return 0;
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// The most resident memory that the program it runs has had, 0: not known.
std::uint64_t program_peak(pid_t pid) {
  const Result<std::string> field = read_status_field(pid, "VmHWM");
  if (!field) return 0;
  std::string_view text = *field;
  text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
  std::uint64_t kib = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), kib);
  return problem == std::errc() && kib < (std::uint64_t{1} << 50) ? kib * 1024 : 0;
}

}  // namespace

void ProcessLives::event(const ProcessEventView& view, RecordingWriter& writer) const {
  const dp_process_event& event = view.event;
  ProcessLife life;
  life.time_ns = event.header.time_ns;
  life.pid = static_cast<std::int32_t>(event.header.pid);
  life.comm = writer.string(event.comm);
  switch (event.header.kind) {
    case DP_EVENT_FORK:
      life.kind = LifeKind::kFork;
      life.parent_pid = static_cast<std::int32_t>(event.parent_pid);
      life.parent_tid = static_cast<std::int32_t>(event.parent_tid);
      break;
    case DP_EVENT_EXEC: {
      life.kind = LifeKind::kExec;
      life.exe = writer.string(view.exe);
      std::string_view args = view.args;
      while (!args.empty() && args.back() == '\0') args.remove_suffix(1);
      life.command_line = writer.string(args);
      // Its last 0 is not kept.
      life.command_bytes = event.args_whole > view.args.size()
                               ? event.args_whole
                               : static_cast<std::uint32_t>(args.size());
      break;
    }
    case DP_EVENT_EXIT:
      life.kind = LifeKind::kExit;
      life.exit_code = event.exit_code;
      break;
    default:
      life.kind = LifeKind::kReaped;
  }
  life.cpu_ns = event.cpu_ns;
  writer.process_life(life);
  if (event.peak_of != DP_PEAK_NONE && event.peak_bytes != 0) {
    writer.memory_peak({.time_ns = life.time_ns,
                        .pid = life.pid,
                        .of = static_cast<PeakOf>(event.peak_of),
                        .bytes = event.peak_bytes});
  }
}

void ProcessLives::there(pid_t pid, pid_t parent, RecordingWriter& writer) const {
  ProcessLife life;
  life.time_ns = monotonic_ns();
  life.pid = pid;
  life.kind = LifeKind::kThere;
  life.parent_pid = parent;
  life.comm = writer.string(read_comm(pid, pid));
  life.exe = writer.string(read_exe(pid));
  if (command_lines_) {
    const std::string args = read_arguments(pid);
    life.command_line = writer.string(args);
    life.command_bytes = static_cast<std::uint32_t>(args.size());
  }
  life.cpu_ns = cpu_time(pid);
  writer.process_life(life);
}

void ProcessLives::left(pid_t pid, RecordingWriter& writer) const {
  ProcessLife life;
  life.time_ns = monotonic_ns();
  life.pid = pid;
  life.kind = LifeKind::kLeft;
  life.cpu_ns = cpu_time(pid);
  if (life.cpu_ns == 0) return;  // it has just ended
  life.comm = writer.string(read_comm(pid, pid));
  writer.process_life(life);
  if (const std::uint64_t bytes = program_peak(pid); bytes != 0) {
    writer.memory_peak(
        {.time_ns = life.time_ns, .pid = pid, .of = PeakOf::kProgram, .bytes = bytes});
  }
}

}  // namespace dynprof
