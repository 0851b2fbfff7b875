#include "user/inject/pending_call.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "symbolizer/base/text.h"
#include "user/inject/call_on_thread.h"
#include "user/inject/code_padding.h"
#include "user/inject/pending_stub.h"
#include "user/inject/pending_watch.h"
#include "user/inject/target_folder.h"
#include "user/inject/target_memory.h"
#include "user/target/elf_image.h"
#include "user/target/process.h"
#include "user/target/remote_memory.h"

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{1};
constexpr std::chrono::microseconds kSoon{100};
constexpr std::chrono::milliseconds kInPage{2000};  // from the stop until the padding is free again
constexpr std::chrono::milliseconds kAfterCancel{
    200};  // a call that has just begun sees it, or not

bool status_is(pid_t pid, const char* name, std::string_view expected) {
  const auto field = read_status_field(pid, name);
  return field && field->find_first_not_of(" \t") != std::string::npos &&
         field->substr(field->find_first_not_of(" \t")) == expected;
}

// The state of the process, and of the thread, that such a call is not tried in.
Result<void> check_process(pid_t pid) {
  if (!status_is(pid, "TracerPid", "0")) return traced_error(pid);
  if (!status_is(pid, "Seccomp", "0"))
    return error(
        fmt::format("process {} has a seccomp filter, which may end it at a system call", pid));
  if (has_shadow_stack(pid)) return error(fmt::format("process {} has a shadow stack (CET)", pid));
  const auto ids = namespace_ids(pid, pid);
  if (ids.empty()) return error(fmt::format("/proc/{}/status is not as expected", pid));
  return check_saved_state();
}

struct Wanted {
  std::string_view name;
  std::uint64_t PendingFunctions::*place;
};

// Those of these functions that a file of the process exports.
void find_in(pid_t pid, std::span<const Mapping> mappings, const Mapping& first,
             std::span<const Wanted> wanted, PendingFunctions& found, ReadBudget& budget) {
  std::vector<Mapping> own;
  for (const Mapping& mapping : mappings)
    if (mapping.same_file(first)) own.push_back(mapping);
  auto file = open_mapped_file(pid, first);
  if (!file) return;
  const auto elf = ElfImage::open(std::move(*file), first.path, budget);
  const auto bias = elf ? elf->load_bias(own) : std::nullopt;
  if (!bias) return;
  std::vector<std::string_view> names;
  for (const Wanted& one : wanted) names.push_back(one.name);
  const auto symbols = elf->find_symbols(names, budget, true);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!symbols[i] || found.*wanted[i].place != 0) continue;
    const std::uint64_t address = *bias + symbols[i]->address;
    const bool code = std::any_of(own.begin(), own.end(), [&](const Mapping& m) {
      return m.executable && m.start <= address && address < m.end;
    });
    if (code) found.*wanted[i].place = address;
  }
}

// Functions that programs spend time in. Not the evaluation loop: the handling of pending calls may be
// inlined there.
constexpr std::array<std::string_view, 56> kInterruptible = {"PyObject_GenericGetAttr",
                                                             "_PyObject_GenericGetAttrWithDict",
                                                             "PyObject_GetAttr",
                                                             "PyObject_SetAttr",
                                                             "PyObject_RichCompare",
                                                             "PyObject_RichCompareBool",
                                                             "PyObject_Hash",
                                                             "PyObject_IsTrue",
                                                             "PyObject_Str",
                                                             "PyObject_Repr",
                                                             "PyObject_GetIter",
                                                             "PyObject_GetItem",
                                                             "PyObject_SetItem",
                                                             "PyObject_Call",
                                                             "PyObject_Vectorcall",
                                                             "_PyObject_MakeTpCall",
                                                             "PyObject_Malloc",
                                                             "PyObject_Free",
                                                             "PyObject_Realloc",
                                                             "PyObject_GC_Del",
                                                             "PyObject_GC_UnTrack",
                                                             "PyObject_GC_Track",
                                                             "_PyObject_GC_New",
                                                             "_PyObject_GC_NewVar",
                                                             "_PyType_Lookup",
                                                             "PyType_GenericAlloc",
                                                             "PyType_IsSubtype",
                                                             "PyDict_GetItem",
                                                             "PyDict_GetItemWithError",
                                                             "_PyDict_GetItem_KnownHash",
                                                             "PyDict_SetItem",
                                                             "PyDict_Next",
                                                             "_PyDict_LoadGlobal",
                                                             "PyDict_New",
                                                             "PyList_Append",
                                                             "PyList_New",
                                                             "PyTuple_New",
                                                             "PyLong_FromLong",
                                                             "PyLong_FromLongLong",
                                                             "PyLong_FromSsize_t",
                                                             "_PyLong_Add",
                                                             "_PyLong_Multiply",
                                                             "PyFloat_FromDouble",
                                                             "PyNumber_Add",
                                                             "PyNumber_InPlaceAdd",
                                                             "PyNumber_Subtract",
                                                             "PyNumber_Multiply",
                                                             "PyNumber_Long",
                                                             "PyUnicode_New",
                                                             "PyUnicode_Concat",
                                                             "PyUnicode_Join",
                                                             "PyUnicode_InternInPlace",
                                                             "_PyUnicode_FromASCII",
                                                             "PyUnicode_RichCompare",
                                                             "PyUnicode_Contains",
                                                             "PySequence_Contains"};

std::vector<AddressRange> find_interruptible(pid_t pid, std::span<const Mapping> mappings,
                                             const std::string& interpreter, ReadBudget& budget) {
  std::vector<Mapping> own;
  for (const Mapping& mapping : mappings)
    if (mapping.path == interpreter) own.push_back(mapping);
  std::vector<AddressRange> found;
  if (own.empty()) return found;
  auto file = open_mapped_file(pid, own.front());
  if (!file) return found;
  const auto elf = ElfImage::open(std::move(*file), interpreter, budget);
  const auto bias = elf ? elf->load_bias(own) : std::nullopt;
  if (!bias) return found;
  for (const auto& symbol : elf->find_symbols(kInterruptible, budget, true))
    if (symbol && symbol->size <= 1 << 16)
      found.push_back({*bias + symbol->address, *bias + symbol->address + symbol->size});
  return found;
}

// Libraries that the list of pending calls is not used by, nor by what they interpose.
bool is_apart(const Mapping& mapping) {
  constexpr std::array<std::string_view, 12> kOthers = {
      "libc.so",   "libc-",  "ld-",     "libpthread", "libdl",    "librt",
      "libpython", "python", "libasan", "libtsan",    "libubsan", "libclang_rt"};
  const std::string_view name = base_name(mapping.path);
  return mapping.executable && !mapping.writable && mapping.is_file() &&
         std::none_of(kOthers.begin(), kOthers.end(),
                      [&](std::string_view other) { return name.starts_with(other); });
}

// In the middle of the widest gap: nothing grows there.
std::optional<std::uint64_t> free_address(pid_t pid) {
  const auto mappings = read_mappings(pid);
  if (!mappings) return std::nullopt;
  constexpr std::uint64_t kLeast = 1ULL << 30;
  std::uint64_t widest = 0, at = 0;
  for (std::size_t i = 1; i < mappings->size(); ++i) {
    const std::uint64_t begin = (*mappings)[i - 1].end, end = (*mappings)[i].start;
    if (end > 1ULL << 47 || end <= begin || end - begin <= widest) continue;
    widest = end - begin;
    at = begin + widest / 2;
  }
  if (widest < kLeast) return std::nullopt;
  return at / kMappingBytes * kMappingBytes;
}

bool maps(pid_t pid, const std::string& library) {
  const auto mappings = read_mappings(pid);
  return mappings && std::any_of(mappings->begin(), mappings->end(), [&](const Mapping& m) {
           return m.executable && m.path == library;
         });
}

Result<PendingData> prepare_data(const PythonRuntime& python, const PendingFunctions& functions,
                                 const std::string& library) {
  const auto base = free_address(python.pid);
  if (!base) return error(fmt::format("process {} has no free addresses", python.pid));
  PendingData data{};
  if (::getrandom(&data.token, sizeof data.token, 0) != sizeof data.token)
    return errno_error("getrandom");
  data.base = *base;
  data.process = static_cast<std::uint32_t>(namespace_ids(python.pid, python.pid).back());
  const bool any_thread = functions.add_for_any_thread != 0;
  data.add_pending_call = any_thread ? functions.add_for_any_thread : functions.add_pending_call;
  data.interpreter = any_thread ? python.main_interpreter : 0;
  data.save_thread = functions.save_thread;
  data.restore_thread = functions.restore_thread;
  data.dlopen = functions.dlopen;
  data.dlsym = functions.dlsym;
  data.dlerror = functions.dlerror;
  data.munmap = functions.munmap;
  std::memcpy(data.function, "InitializeInjection", sizeof "InitializeInjection");
  if (library.size() >= sizeof data.library)
    return error(
        fmt::format("the path {} is longer than {} bytes", library, sizeof data.library - 1));
  std::memcpy(data.library, library.c_str(), library.size() + 1);
  return data;
}

// The word of _gil_runtime_state.mutex, a pthread_mutex_t, of CPython 3.13 to 3.15: 0 while no thread holds it. Behind
// interval, last_holder, locked, switch_number and cond.
constexpr std::uint64_t kGilMutex = 0x50;

bool gil_mutex_is_free(ProcessMemory& memory, const PythonRuntime& python) {
  const auto gil = memory.read_pointer(python.main_interpreter + python.layout.interpreter_gil);
  return gil && memory.read<std::uint32_t>(*gil + kGilMutex) == 0;
}

// Makes the main thread add the call; how long it was stopped for that.
Result<std::uint64_t> add_call(const PythonRuntime& python, const PendingData& data,
                               const PendingFunctions& functions, const LoadLimits& limits) {
  PendingWatch watch(python.pid, data);
  const pid_t pid = python.pid;
  const std::vector<std::byte> stub = pending_stub(data);
  ASSIGN_OR_RETURN(CodePadding padding, CodePadding::find(pid, python.image_path, stub.size()));
  TRY(padding.write(stub));
  ProcessMemory memory(pid);
  const auto unchanged = [&] {
    std::array<std::byte, 64> there;
    return memory.read(padding.address(), there) &&
           std::equal(there.begin(), there.end(), stub.begin());
  };
  // From CPython 3.13 on the thread that holds the GIL is told of a call for any thread, under a mutex of the GIL. The
  // thread that is stopped may hold that: it wakes another one under it when it releases the GIL.
  std::function<bool()> locks_free;
  if (data.interpreter != 0 && python.layout.interpreter_gil != 0)
    locks_free = [&] { return gil_mutex_is_free(memory, python); };
  ASSIGN_OR_RETURN(const std::uint64_t stopped_ns,
                   enter_code({.process = pid,
                               .thread = pid,
                               .code = padding.address(),
                               .functions = functions.functions,
                               .libraries = functions.libraries,
                               .unchanged = unchanged,
                               .locks_free = locks_free,
                               .passed = [&] { return watch.see_in_page(); }},
                              limits.safe_point, limits.stop_requested));
  const auto until = Clock::now() + kInPage;
  for (;;) {
    if (watch.see_in_page()) break;
    if (Clock::now() >= until) {
      padding.leave();
      if (maps(pid, data.library)) return stopped_ns;
      return error(
          fmt::format("process {} did not map memory for the call; {} unused bytes in {} stay "
                      "changed",
                      pid, stub.size(), padding.path()));
    }
    std::this_thread::sleep_for(kSoon);
  }
  TRY(padding.restore());
  return stopped_ns;
}

}  // namespace

Error traced_error(pid_t pid) {
  return error(fmt::format("another program traces process {} (a debugger, strace)", pid),
               "end it first");
}

Result<PendingFunctions> find_pending_functions(const PythonRuntime& python) {
  const pid_t pid = python.pid;
  TRY(check_process(pid));
  constexpr std::array kInterpreter = {
      Wanted{"Py_AddPendingCall", &PendingFunctions::add_pending_call},
      Wanted{"_PyEval_AddPendingCall", &PendingFunctions::add_for_any_thread},
      Wanted{"PyEval_SaveThread", &PendingFunctions::save_thread},
      Wanted{"PyEval_RestoreThread", &PendingFunctions::restore_thread}};
  constexpr std::array kGlibc = {
      Wanted{"dlopen", &PendingFunctions::dlopen}, Wanted{"dlsym", &PendingFunctions::dlsym},
      Wanted{"dlerror", &PendingFunctions::dlerror}, Wanted{"munmap", &PendingFunctions::munmap}};
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(pid));
  ReadBudget budget(256ULL << 20, std::chrono::milliseconds(3000));
  PendingFunctions found;
  bool glibc = false;
  for (const Mapping& mapping : mappings) {
    if (!mapping.executable || !mapping.is_file()) continue;
    const std::string_view name = base_name(mapping.path);
    const bool libc = name.starts_with("libc.so.6") || name.starts_with("libc-2.");
    glibc = glibc || libc;
    if (mapping.path == python.image_path)
      find_in(pid, mappings, mapping, kInterpreter, found, budget);
    else if (libc || name.starts_with("libdl.so.2") || name.starts_with("libdl-2."))
      find_in(pid, mappings, mapping, kGlibc, found, budget);
  }
  if (!glibc) return error(fmt::format("process {} does not use glibc", pid));
  if (found.dlopen == 0 || found.dlsym == 0 || found.dlerror == 0 || found.munmap == 0)
    return error(fmt::format("dlopen was not found in process {}", pid));
  if (found.add_pending_call == 0 || found.save_thread == 0 || found.restore_thread == 0)
    return error(
        fmt::format("{} of process {} does not export Py_AddPendingCall", python.image_path, pid));
  // Before 3.12 it has other arguments; from 3.13 on it takes a mutex that has to be found (add_call).
  const std::uint16_t version = python.layout.python;
  if (version < python_version(3, 12) ||
      (version >= python_version(3, 13) && python.layout.interpreter_gil == 0))
    found.add_for_any_thread = 0;
  found.functions = find_interruptible(pid, mappings, python.image_path, budget);
  for (const Mapping& mapping : mappings)
    if (is_apart(mapping) && mapping.path != python.image_path)
      found.libraries.push_back({mapping.start, mapping.end});
  return found;
}

Result<Loaded> load_by_pending_call(const PythonRuntime& python, const std::string& library,
                                    const LoadLimits& limits) {
  const pid_t pid = python.pid;
  std::optional<TargetFolder> folder;
  std::string path = path_for_target(pid, library).value_or("");
  if (path.empty()) {
    ASSIGN_OR_RETURN(TargetFolder created, TargetFolder::create(pid));
    folder.emplace(std::move(created));
    const std::string name(base_name(library));
    TRY(folder->put_copy(name, library));
    path = folder->path_of(name);
  }
  ASSIGN_OR_RETURN(const PendingFunctions functions, find_pending_functions(python));
  ASSIGN_OR_RETURN(const PendingData data, prepare_data(python, functions, path));
  ASSIGN_OR_RETURN(const std::uint64_t stopped_ns, add_call(python, data, functions, limits));
  PendingWatch watch(pid, data);
  const Loaded loaded = {.how = "by a pending call of its interpreter", .stopped_ns = stopped_ns};

  auto deadline = Clock::now() + limits.safe_point;
  for (bool begun = false;; std::this_thread::sleep_for(kPoll)) {
    watch.see_gone();
    const auto state = watch.state();
    if (!state || *state == PendingState::kLoaded) {
      const auto gone = Clock::now() + kAfterCancel;
      while (watch.state() && Clock::now() < gone) {
        watch.see_gone();
        std::this_thread::sleep_for(kPoll);
      }
      if (maps(pid, path)) return loaded;
      return error(fmt::format("process {} has ended, or did not load {}", pid, path));
    }
    if (*state == PendingState::kFailed)
      return error(fmt::format("the loader of process {} refused the library: {}", pid,
                               escape_terminal(watch.error_text())));
    if (*state == PendingState::kFull)
      return error(
          fmt::format("the interpreter of process {} has no room for a pending call", pid));
    if (*state == PendingState::kLoading && !begun) {
      begun = true;
      deadline = Clock::now() + limits.loading;
    }
    const bool stop = limits.stop();
    if (!stop && Clock::now() < deadline) continue;
    watch.cancel();
    std::this_thread::sleep_for(kAfterCancel);
    if (!watch.state() && maps(pid, path)) return loaded;
    if (stop) return error("stopped while the library was being loaded");
    if (watch.state() == PendingState::kLoading)
      return error(fmt::format("the loader of process {} did not end in time", pid));
    return no_safe_point(data.interpreter != 0
                             ? fmt::format("process {} ran no Python code", pid)
                             : fmt::format("the main thread of process {} ran no Python code", pid),
                         limits);
  }
}

}  // namespace dynprof
