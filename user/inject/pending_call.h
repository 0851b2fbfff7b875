// Loads a library into CPython by a pending call (Py_AddPendingCall): its main thread is stopped once, in or before a
// system call, and made to add the call. The interpreter makes it at a safe point: of the main thread up to 3.11, from
// 3.12 on of whichever thread comes to one first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/inject/loading.h"
#include "user/target/python_image.h"
#include "user/target/python_runtime.h"

namespace dynprof {

// Why nothing is changed in a process that a debugger holds.
Error traced_error(pid_t pid);

// Functions in the process.
struct PendingFunctions {
  std::uint64_t add_pending_call = 0, save_thread = 0, restore_thread = 0;  // of the interpreter
  // _PyEval_AddPendingCall of CPython 3.12 and later, whose calls are made by any thread; 0: it is not exported.
  std::uint64_t add_for_any_thread = 0;
  std::uint64_t dlopen = 0, dlsym = 0, dlerror = 0, munmap = 0;  // of glibc
  // In these a thread may be stopped to add a call: neither the interpreter's functions that use the list of
  // pending calls nor signal handlers call them, so the thread does not hold the lock of that list.
  std::vector<AddressRange> functions;
  // The code of libraries that have nothing to do with that list either.
  std::vector<AddressRange> libraries;
};
// Where they are, or why this process is not one whose thread may be stopped for this.
Result<PendingFunctions> find_pending_functions(const PythonRuntime& python);

Result<Loaded> load_by_pending_call(const PythonRuntime& python, const std::string& library,
                                    const LoadLimits& limits);

}  // namespace dynprof
