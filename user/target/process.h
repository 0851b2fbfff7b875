// What /proc says about a process. Every text comes from another program: bounded, and never trusted as a path
// or as terminal output.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/text.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

struct ProcessStat {
  pid_t pid = 0;
  std::string comm;
  char state = '?';  // R, S, D, Z, ...
  pid_t parent = 0;
  std::uint64_t start_ticks = 0;  // since boot; a reused pid differs in it
  std::uint64_t cpu_ticks = 0;    // of all its threads
  bool kernel_thread = false;
  bool forked = false;  // and runs its parent's program, without an exec since
  bool zombie() const { return state == 'Z' || state == 'X'; }
};

// Fails with ESRCH when there is no such process.
Result<ProcessStat> read_process_stat(pid_t pid);
Result<std::vector<pid_t>> list_threads(pid_t pid);
std::string read_comm(pid_t pid, pid_t tid);  // "" when gone
// A variable of the environment the process was started with; "" where there is none among the first megabyte.
std::string read_environment(pid_t pid, std::string_view name);
std::string read_command_line(pid_t pid);  // arguments joined by spaces, at most 4096 bytes
// The same with a 0 byte between two arguments, as they are.
std::string read_arguments(pid_t pid);
std::string read_exe(pid_t pid);       // "" when not readable, " (deleted)" removed
Result<uid_t> process_uid(pid_t pid);  // the real uid
// What /proc/PID/status says after "NAME:", blanks included.
Result<std::string> read_status_field(pid_t pid, std::string_view name);
// Its main thread has a shadow stack (CET; x86-64, Linux 6.6 and later).
bool has_shadow_stack(pid_t pid);

// Whether a is the thread group leader: `--pid` wants a process, not a thread of one.
Result<pid_t> thread_group_of(pid_t pid);

struct Mapping {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::uint64_t inode = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  bool deleted = false;
  std::string path;  // as seen by the target; "[heap]" and the like; newlines undone
  bool is_file() const { return inode != 0 && !path.empty() && path[0] == '/'; }
  bool same_file(const Mapping& other) const {
    return inode == other.inode && device_major == other.device_major &&
           device_minor == other.device_minor && path == other.path;
  }
};

inline constexpr std::size_t kMaxMappings = 100'000;

std::optional<Mapping> parse_mapping(std::string_view line);
// At most kMaxMappings of them, in address order.
Result<std::vector<Mapping>> read_mappings(pid_t pid);
// There is no such process, or it is ending and its memory is gone.
bool has_ended(pid_t pid);
Error ended_error(pid_t pid);

// The very file that is mapped, also when it was deleted or replaced since, or lies in another mount
// namespace. Read only; a regular file (user/target/safe_open.h) or an error.
Result<UniqueFd> open_mapped_file(pid_t pid, const Mapping& mapping);

bool in_initial_pid_namespace();
Result<bool> shares_our_pid_namespace(pid_t pid);
// The id of a thread in each nested namespace, ours first ("NSpid:"): the last is what the target
// itself sees, as in PyThreadState.native_thread_id.
std::vector<pid_t> namespace_ids(pid_t pid, pid_t tid);

}  // namespace dynprof
