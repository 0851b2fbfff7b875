// Where torch keeps what it knows about each thread: `torch._guards._TLS.compile_context`, the compile
// that is open, and `torch._dynamo.utils.CHROMIUM_EVENT_LOG.tls.stack`, the list of open phases. Both
// are attributes of a threading.local: a dict per thread, which the kernel side then reads by address.
// Offsets of threading.local measured on CPython 3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.13.0, 3.14.10 and 3.15.2.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/events.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

// The two threading.local objects of a process; 0: not there (yet). The event log is made by torch
// when the first compile begins.
struct TorchLocals {
  std::uint64_t guards = 0;
  std::uint64_t event_log = 0;
  bool complete() const { return guards != 0 && event_log != 0; }
};
TorchLocals find_torch_locals(RemoteObjects& objects, const PythonRuntime& runtime);

// An attribute of a threading.local object as one thread sees it; 0: it has none.
std::uint64_t thread_local_value(RemoteObjects& objects, std::uint64_t local, std::uint64_t tstate,
                                 std::string_view name);

// What the kernel side needs to read them on one thread. Entries are 0 where the thread has none yet.
dp_torch_thread find_torch_thread(RemoteObjects& objects, const TorchLocals& locals,
                                  std::uint64_t tstate);

// What they hold now, read from outside: may be torn, then nullopt.
struct TorchThreadState {
  std::uint64_t phase_list = 0;     // address of the list, 0: none
  std::uint64_t context = 0;        // address of the CompileContext, 0: none is open
  std::vector<std::string> phases;  // outermost first
};
std::optional<TorchThreadState> read_torch_thread(RemoteObjects& objects,
                                                  const dp_torch_thread& thread,
                                                  std::uint64_t none);

// The same without the names of the phases: a few reads, for frequent calls.
struct TorchThreadIds {
  std::uint64_t context = 0;      // as above
  std::uint64_t open_phases = 0;  // how many
};
std::optional<TorchThreadIds> read_torch_thread_ids(RemoteObjects& objects,
                                                    const dp_torch_thread& thread,
                                                    std::uint64_t none);

// The ids a CompileContext holds, -1 where absent; nullopt when it is none or torn.
struct TorchIds {
  std::int32_t autograd_id = -1;
  std::int32_t frame_id = -1;
  std::int32_t compile_id = -1;
  std::int32_t attempt = -1;
};
std::optional<TorchIds> read_compile_context(RemoteObjects& objects, const dp_torch_layout& layout,
                                             std::uint64_t none, std::uint64_t context);

// A phase's name as the kernel side saw it. "": it is no longer there.
std::string read_phase_name(RemoteObjects& objects, const dp_phase_name& name);

// tid -> PyThreadState of all threads of a process that have one. By the tid that glibc keeps in
// struct pthread, else by PyThreadState.native_thread_id, translated to our pid namespace.
std::map<pid_t, std::uint64_t> thread_states(RemoteObjects& objects, const PythonRuntime& runtime);

}  // namespace dynprof
