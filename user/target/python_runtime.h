// The interpreter of a live process: which version, where its state lies, how a thread finds its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bpf/events.h"
#include "symbolizer/base/result.h"
#include "user/target/interpreter_walk.h"
#include "user/target/known_images.h"
#include "user/target/python_layouts.h"
#include "user/target/remote_memory.h"

namespace dynprof {

struct PythonRuntime {
  pid_t pid = 0;
  std::uint32_t hex_version = 0;  // PY_VERSION_HEX; its low half is 0 when only the minor is known
  std::string version;            // "3.11.7", "3.11" when only that much is known
  PythonLayout layout;
  std::string image_path;     // the file that holds the interpreter
  std::string found_by;       // for logs: "symbol _PyRuntime in /usr/bin/python3.11"
  std::uint64_t runtime = 0;  // &_PyRuntime
  std::uint64_t main_interpreter = 0;
  std::vector<RemoteInterpreter> interpreters;
  std::vector<RemoteThread> threads;  // at the time of discovery
  std::optional<ThreadStateOffset> tstate_offset;
  // Objects BPF and the readers compare types with; 0: not known.
  std::uint64_t long_type = 0;
  std::uint64_t cell_type = 0;
  std::uint64_t code_type = 0;
  std::uint64_t str_type = 0;
  std::uint64_t none = 0;

  // What the kernel side needs; `torch` is left zero.
  dp_process fill_bpf(std::uint32_t flags = 0) const;
};

enum class PythonFault : std::uint8_t {
  kNone,
  kNoProcess,    // no such pid, a zombie, a kernel thread
  kNotReadable,  // permissions
  kNotPython,
  kUnsupported,    // a Python, but of another version: native names only
  kStarting,       // the interpreter is not there yet: ask again
  kBadLayout,      // offsets do not fit this build
  kNoThreadState,  // the offset of PyThreadState was not found on any thread
};

struct PythonDiscovery {
  PythonFault fault = PythonFault::kNone;
  std::string version;          // also when unsupported: "3.8"
  bool no_descriptors = false;  // we could open no more files: what is said of it may be wrong
  bool retryable() const { return fault == PythonFault::kStarting; }
};

// `details`, where given, receives the kind of the error. `known`: what earlier calls found in files, and this one will.
Result<PythonRuntime> discover_python(pid_t pid, PythonDiscovery* details = nullptr,
                                      KnownImages* known = nullptr);

}  // namespace dynprof
