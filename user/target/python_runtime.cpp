#include "user/target/python_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "user/target/descriptor_limit.h"
#include "user/target/process.h"
#include "user/target/python_image.h"
#include "user/target/runtime_scan.h"

namespace dynprof {
namespace {

constexpr const char* kTryAgain = "try again in a second";
constexpr const char* kReportBuild =
    "the build differs from python.org's; please report its version and origin";

// 3.11.7 as 0x030b07f0 -> "3.11.7"; pre-releases as CPython prints them.
std::string version_text(std::uint32_t hex) {
  std::string text = fmt::format("{}.{}.{}", hex >> 24, hex >> 16 & 0xff, hex >> 8 & 0xff);
  std::uint32_t level = hex >> 4 & 0xf;
  if (level == 0xa) text += fmt::format("a{}", hex & 0xf);
  if (level == 0xb) text += fmt::format("b{}", hex & 0xf);
  if (level == 0xc) text += fmt::format("rc{}", hex & 0xf);
  return text;
}

// The process runs on while we look: what is torn is looked at again, a little later. 3.12 links a
// call's cframe before it says which frame that is; where a thread was preempted there, this lasts until it
// runs again, on a busy machine tens of milliseconds.
constexpr int kAttempts = 100;
constexpr std::chrono::milliseconds kPause{2};

bool plausible_hex(std::uint32_t hex) {
  std::uint32_t level = hex >> 4 & 0xf;
  return hex >> 24 == 3 && (hex >> 16 & 0xff) < 64 && level >= 0xa;
}

class Discoverer {
 public:
  Discoverer(pid_t pid, KnownImages& known) : pid_(pid), known_(known), memory_(pid) {}
  Result<PythonRuntime> run(PythonDiscovery& details);

 private:
  Error fail(PythonDiscovery& details, PythonFault fault, std::string what,
             std::string hint = {}) const {
    details.fault = fault;
    return error(std::move(what), std::move(hint));
  }
  Error unsupported(PythonDiscovery& details, std::uint16_t python, const std::string& path) const;
  Result<PythonRuntime> try_image(const PythonImage& image, std::uint16_t path_version,
                                  PythonDiscovery& details);
  Result<void> choose_layout(const PythonImage& image, std::uint16_t path_version,
                             PythonRuntime& runtime, PythonDiscovery& details);
  Result<void> check(PythonRuntime& runtime, PythonDiscovery& details);
  void find_types(RemoteObjects& objects, PythonRuntime& runtime);
  bool find_modules(RemoteObjects& objects, PythonRuntime& runtime);
  bool fit_str_state(RemoteObjects& objects, PythonRuntime& runtime);

  std::optional<std::uint64_t> find_debug_offsets(const PythonImage& image);

  pid_t pid_;
  KnownImages& known_;
  ProcessMemory memory_;
};

Error Discoverer::unsupported(PythonDiscovery& details, std::uint16_t python,
                              const std::string& path) const {
  details.version = fmt::format("{}.{}", python >> 8, python & 0xff);
  return fail(details, PythonFault::kUnsupported,
              fmt::format("process {} runs Python {} ({}), which is not supported", pid_,
                          details.version, path),
              fmt::format("supported are CPython {}; for others only native names can be shown",
                          supported_versions()));
}

Result<void> Discoverer::choose_layout(const PythonImage& image, std::uint16_t path_version,
                                       PythonRuntime& runtime, PythonDiscovery& details) {
  // From 3.13 on _PyRuntime describes itself.
  if (image.runtime != 0) {
    std::array<std::byte, kDebugOffsetsBytes> head;
    if (memory_.read(image.runtime, head) &&
        std::memcmp(head.data(), kDebugCookie.data(), kDebugCookie.size()) == 0) {
      std::uint16_t told = static_cast<std::uint16_t>(load<std::uint64_t>(head, 8) >> 16);
      auto offsets = parse_debug_offsets(head);
      if (!offsets) {
        if (told > newest_version() && told < python_version(4, 0)) {
          return unsupported(details, told, image.path);
        }
        bool free_threaded = load<std::uint64_t>(head, 16) == 1 && told >= python_version(3, 14);
        details.version = fmt::format("{}.{}", told >> 8, told & 0xff);
        return fail(details, free_threaded ? PythonFault::kUnsupported : PythonFault::kBadLayout,
                    fmt::format("process {}: {} ({})", pid_, offsets.error().what, image.path),
                    free_threaded ? "only native names can be shown" : "");
      }
      runtime.layout = offsets->layout;
      runtime.hex_version = offsets->hex_version;
      runtime.found_by += ", offsets from its debug table";
      return {};
    }
  }
  std::uint16_t python = path_version;
  if (image.version != 0) {
    auto hex = memory_.read<std::uint64_t>(image.version);
    if (hex && plausible_hex(static_cast<std::uint32_t>(*hex))) {
      runtime.hex_version = static_cast<std::uint32_t>(*hex);
      python = static_cast<std::uint16_t>(*hex >> 16);
    }
  }
  if (python == 0) {
    return fail(details, PythonFault::kBadLayout,
                fmt::format("{} holds a Python whose version is not known", image.path),
                kReportBuild);
  }
  const PythonLayout* table = measured_layout(python);
  if (!table) return unsupported(details, python, image.path);
  runtime.layout = *table;
  if (runtime.hex_version == 0) runtime.hex_version = static_cast<std::uint32_t>(python) << 16;
  return {};
}

bool Discoverer::find_modules(RemoteObjects& objects, PythonRuntime& runtime) {
  auto has_sys = [&](std::uint64_t dict) {
    auto sys = objects.dict_get(dict, "sys");
    return sys && objects.module_get(*sys, "hexversion").has_value();
  };
  std::uint64_t place = runtime.main_interpreter + runtime.layout.interpreter_modules;
  if (auto dict = memory_.read_pointer(place); dict && has_sys(*dict)) return true;
  // PyInterpreterState is not stable between patch releases and builds: look for the dict nearby.
  constexpr std::size_t kNear = 16'384;
  std::vector<std::byte> bytes(kNear);
  RemoteRange range{runtime.main_interpreter, bytes};
  memory_.read_many(std::span(&range, 1));
  for (std::size_t at = 0; at + 8 <= range.done; at += 8) {
    std::uint64_t value = load<std::uint64_t>(bytes, at);
    if (!plausible_pointer(value) || !has_sys(value)) continue;
    // sys.modules, not the dict of some module that imported sys.
    if (!objects.dict_get(value, "builtins") || !objects.dict_get(value, "_imp")) continue;
    runtime.layout.interpreter_modules = static_cast<std::uint32_t>(at);
    return true;
  }
  return false;
}

// How wide `interned` is at the start of a str's state has changed within 3.14.
bool Discoverer::fit_str_state(RemoteObjects& objects, PythonRuntime& runtime) {
  if (runtime.layout.python < python_version(3, 14)) return false;
  const std::uint32_t usual = runtime.layout.unicode_kind_shift;
  for (std::uint32_t shift : {16U, 8U}) {
    runtime.layout.unicode_kind_shift = shift;
    if (find_modules(objects, runtime)) return true;
  }
  runtime.layout.unicode_kind_shift = usual;
  return false;
}

void Discoverer::find_types(RemoteObjects& objects, PythonRuntime& runtime) {
  auto builtins = objects.find_module(runtime.main_interpreter, "builtins");
  auto builtin = [&](std::uint64_t& place, std::string_view name) {
    if (place != 0 || !builtins) return;
    if (auto object = objects.module_get(*builtins, name)) place = *object;
  };
  builtin(runtime.long_type, "int");
  builtin(runtime.str_type, "str");
  builtin(runtime.none, "None");
  // types.py is imported by site; the two are its CellType and CodeType.
  auto types = objects.find_module(runtime.main_interpreter, "types");
  if (!types) return;
  if (runtime.cell_type == 0) {
    runtime.cell_type = objects.module_get(*types, "CellType").value_or(0);
  }
  if (runtime.code_type == 0) {
    runtime.code_type = objects.module_get(*types, "CodeType").value_or(0);
  }
}

Result<void> Discoverer::check(PythonRuntime& runtime, PythonDiscovery& details) {
  RemoteObjects objects(memory_, runtime.layout);
  std::string version = fmt::format("Python {}", runtime.version);
  InterpreterWalk walk;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    walk = walk_interpreters(objects, runtime.runtime);
    if (walk.problem.empty()) break;
    std::this_thread::sleep_for(kPause);
  }
  if (!memory_.read<std::uint64_t>(runtime.runtime)) {  // an exec under way: no .bss yet
    return fail(details, PythonFault::kStarting,
                fmt::format("the {} of process {} is still being loaded", version, pid_),
                kTryAgain);
  }
  if (!walk.problem.empty()) {
    return fail(details, PythonFault::kBadLayout,
                fmt::format("process {}: the offsets of {} do not fit {}: {}", pid_, version,
                            runtime.image_path, walk.problem),
                kReportBuild);
  }
  const RemoteInterpreter* main = walk.main();
  if (!main || walk.threads.empty()) {
    return fail(details, PythonFault::kStarting,
                fmt::format("the {} of process {} is still starting", version, pid_), kTryAgain);
  }
  runtime.main_interpreter = main->address;
  runtime.interpreters = walk.interpreters;
  runtime.threads = walk.threads;
  if (!find_modules(objects, runtime) && !fit_str_state(objects, runtime)) {
    return fail(details, PythonFault::kStarting,
                fmt::format("the {} of process {} is still starting: it has no module sys yet",
                            version, pid_),
                kTryAgain);
  }
  // sys.hexversion, read through dicts, strings and an int, must be the version that was found.
  auto sys = objects.find_module(runtime.main_interpreter, "sys");
  auto hex_object = sys ? objects.module_get(*sys, "hexversion") : std::nullopt;
  auto hex = hex_object ? objects.read_int(*hex_object) : std::nullopt;
  if (!hex) {
    return fail(details, PythonFault::kStarting,
                fmt::format("the {} of process {} is still starting", version, pid_), kTryAgain);
  }
  if (static_cast<std::uint32_t>(*hex) >> 16 != runtime.layout.python) {
    return fail(details, PythonFault::kBadLayout,
                fmt::format("process {}: sys.hexversion is {:#x}, but {} looks like {}", pid_, *hex,
                            runtime.image_path, version),
                kReportBuild);
  }
  runtime.hex_version = static_cast<std::uint32_t>(*hex);
  runtime.version = version_text(runtime.hex_version);
  find_types(objects, runtime);
  objects.set_str_type(runtime.str_type);

  // Frames: the outermost ones of any thread must be code objects with a readable name.
  bool any_frames = false;
  bool any_named = false;
  for (int attempt = 0; attempt < kAttempts && !any_named; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kPause);
    for (const RemoteThread& thread : walk.threads) {
      auto frames = walk_frames(objects, thread.tstate, 4096);
      if (!frames || frames->empty()) continue;
      any_frames = true;
      const dp_python_layout& b = runtime.layout.bpf;
      auto name = memory_.read_pointer(frames->back().code + b.code_base + b.code_filename);
      any_named = name && objects.read_str(*name, 4096).has_value();
      if (any_named) break;
    }
  }
  if (any_frames && !any_named) {
    return fail(
        details, PythonFault::kBadLayout,
        fmt::format("process {}: no frame of this {} leads to a code object", pid_, version),
        kReportBuild);
  }
  runtime.tstate_offset = find_tstate_offset(memory_, walk.threads, runtime.main_interpreter);
  if (!runtime.tstate_offset) {
    bool alive = false;
    for (const RemoteThread& thread : walk.threads) {
      alive = alive || is_thread_pointer(memory_, thread.pthread);
    }
    return fail(details, alive ? PythonFault::kNoThreadState : PythonFault::kStarting,
                fmt::format("process {}: no thread keeps its PyThreadState within 4 KiB of its "
                            "thread pointer",
                            pid_),
                "a C library other than glibc, or 32 thread-specific keys taken before Python's");
  }
  return {};
}

std::optional<std::uint64_t> Discoverer::find_debug_offsets(const PythonImage& image) {
  if (image.no_debug_offsets) return std::nullopt;
  const RuntimeScan scanned = scan_for_cookie(memory_, image.writable);
  KnownImage* known = image.file ? known_.find(*image.file) : nullptr;
  if (known && !scanned.place && scanned.complete) known->no_debug_offsets = true;
  return scanned.place;
}

Result<PythonRuntime> Discoverer::try_image(const PythonImage& image, std::uint16_t path_version,
                                            PythonDiscovery& details) {
  PythonRuntime runtime;
  runtime.pid = pid_;
  runtime.image_path = image.path;
  runtime.runtime = image.runtime;
  runtime.long_type = image.long_type;
  runtime.cell_type = image.cell_type;
  runtime.code_type = image.code_type;
  runtime.str_type = image.str_type;
  runtime.none = image.none;
  runtime.found_by = fmt::format("symbol _PyRuntime in {}", image.path);
  PythonImage known = image;
  if (known.runtime == 0) {
    auto place = find_debug_offsets(image);
    runtime.found_by = fmt::format("debug offsets in the data of {}", image.path);
    if (!place) {
      if (const PythonLayout* layout = measured_layout(path_version)) {
        place = scan_for_interpreter(memory_, image.writable, *layout);
      } else if (path_version != 0) {
        return unsupported(details, path_version, image.path);
      }
      runtime.found_by = fmt::format("an interpreter found in the data of {}", image.path);
    }
    if (!place) {
      return fail(details, PythonFault::kNotPython,
                  fmt::format("no interpreter was found in {}", image.path));
    }
    known.runtime = runtime.runtime = *place;
  }
  TRY(choose_layout(known, path_version, runtime, details));
  TRY(validate_layout(runtime.layout));
  runtime.version = fmt::format("{}.{}", runtime.layout.major(), runtime.layout.minor());
  details.version = runtime.version;
  TRY(check(runtime, details));
  details.version = runtime.version;
  return runtime;
}

Result<PythonRuntime> Discoverer::run(PythonDiscovery& details) {
  auto stat = read_process_stat(pid_);
  if (!stat) {
    details.fault = PythonFault::kNoProcess;
    return std::move(stat).error();
  }
  if (stat->kernel_thread) {
    return fail(details, PythonFault::kNoProcess,
                fmt::format("process {} ({}) is a kernel thread", pid_, stat->comm),
                "give the pid of a Python process; `pgrep -a python` lists them");
  }
  if (stat->zombie()) {
    return fail(
        details, PythonFault::kNoProcess,
        fmt::format("process {} ({}) has ended and waits for its parent", pid_, stat->comm));
  }
  auto mappings = read_mappings(pid_);
  if (!mappings) {
    bool denied = mappings.error().errno_value == EACCES || mappings.error().errno_value == EPERM;
    details.fault = denied ? PythonFault::kNotReadable : PythonFault::kNoProcess;
    return std::move(mappings).error();
  }
  if (auto access = memory_.check_access(*mappings); !access) {
    int problem = access.error().errno_value;
    details.fault = problem == ESRCH    ? PythonFault::kNoProcess
                    : problem == EFAULT ? PythonFault::kStarting  // an exec under way
                                        : PythonFault::kNotReadable;
    return std::move(access).error();
  }
  std::string exe = read_exe(pid_);
  // An exec between the two look-ups: what was mapped is not what runs now.
  bool mapped = std::any_of(mappings->begin(), mappings->end(),
                            [&](const Mapping& m) { return m.path == exe; });
  if (!mapped) {
    if (auto again = read_mappings(pid_)) mappings = std::move(again);
  }
  ImageSearch search = find_python_images(pid_, *mappings, exe, known_);
  std::uint16_t path_version = version_from_paths(*mappings, exe);

  // Several _PyRuntime (an embedded libpython beside a static executable): the one that lives.
  std::optional<Error> first_problem;
  PythonDiscovery first_details;
  for (const PythonImage& image : search.images) {
    PythonDiscovery attempt;
    auto runtime = try_image(image, path_version, attempt);
    if (runtime) {
      details = attempt;
      return runtime;
    }
    bool better = !first_problem || (first_details.fault == PythonFault::kNotPython &&
                                     attempt.fault != PythonFault::kNotPython);
    if (better) {
      first_problem = runtime.error();
      first_details = attempt;
    }
  }
  if (search.loading) {  // whatever was read so far may not be in its place yet
    return fail(details, PythonFault::kStarting,
                fmt::format("process {} ({}) is still being loaded", pid_, exe), kTryAgain);
  }
  if (first_problem && first_details.fault != PythonFault::kNotPython) {
    details = first_details;
    return *std::move(first_problem);
  }
  if (!search.unreadable.empty()) {
    return fail(details, PythonFault::kNotReadable, search.unreadable,
                "run as root (sudo), or give it CAP_SYS_PTRACE and CAP_SYS_ADMIN");
  }
  if (path_version != 0 && !measured_layout(path_version) && first_problem) {
    return unsupported(details, path_version, exe);
  }
  return fail(
      details, PythonFault::kNotPython,
      fmt::format("process {} ({}) is not a Python process", pid_, exe.empty() ? stat->comm : exe),
      "give the pid of a Python process; `pgrep -a python` lists them");
}

}  // namespace

Result<PythonRuntime> discover_python(pid_t pid, PythonDiscovery* details, KnownImages* known) {
  PythonDiscovery ignored;
  KnownImages none;
  PythonDiscovery& d = details ? *details : ignored;
  d = {};
  auto runtime = Discoverer(pid, known ? *known : none).run(d);
  // What was read while it ended explains nothing.
  if (!runtime && d.fault != PythonFault::kNoProcess && has_ended(pid)) {
    d.fault = PythonFault::kNoProcess;
    runtime = ended_error(pid);
  }
  if (!runtime) {
    const int problem = runtime.error().errno_value;
    d.no_descriptors = problem == EMFILE || problem == ENFILE || out_of_descriptors();
    if (d.fault == PythonFault::kNone) d.fault = PythonFault::kBadLayout;
  }
  return runtime;
}

dp_process PythonRuntime::fill_bpf(std::uint32_t flags) const {
  dp_process process{};
  process.flags = flags | (tstate_offset ? DP_PROCESS_PYTHON : 0u);
  process.tstate_offset = tstate_offset ? tstate_offset->offset : 0;
  process.tstate_other = tstate_offset ? tstate_offset->other : 0;
  process.main_interpreter = main_interpreter;
  process.long_type = long_type;
  process.cell_type = cell_type;
  process.none = none;
  process.python = layout.bpf;
  process.python.str_data = static_cast<std::uint8_t>(layout.unicode_ascii_data);
  process.python.str_kind_shift = static_cast<std::uint8_t>(layout.unicode_kind_shift);
  return process;
}

}  // namespace dynprof
