#include "user/target/torch_threads.h"

#include <unordered_map>

#include "user/target/interpreter_walk.h"
#include "user/target/process.h"
#include "user/target/remote_values.h"
#include "user/target/torch_layout.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxThreadLocals = 4096;
constexpr std::size_t kMaxPhases = 64;
constexpr std::size_t kMaxPhaseName = 256;
// glibc x86-64: struct pthread.tid.
constexpr std::uint64_t kPthreadTid = 720;

constexpr std::uint32_t kLocalKey = 16;    // localobject.key
constexpr std::uint32_t kDummyDict = 16;   // localdummyobject.localdict
constexpr std::uint32_t kLocalDicts = 40;  // localobject.localdicts, 3.13+

std::uint64_t value_of(RemoteObjects& objects, std::uint64_t dict, std::uint64_t key) {
  auto entries = objects.dict_entries(dict);
  if (!entries || entries->size() > kMaxThreadLocals) return 0;
  for (const DictEntry& entry : *entries)
    if (entry.key == key) return entry.value;
  return 0;
}

// The dict of a threading.local in one thread; 0: the thread never used it. Up to 3.12 the thread state's
// dict maps local.key (by identity) to a _localdummy, which has the dict; from 3.13 on local.localdicts maps
// the thread's key to the dict itself.
std::uint64_t local_dict(RemoteObjects& objects, std::uint64_t local, std::uint64_t tstate) {
  const PythonLayout& t = objects.layout();
  if (local == 0 || tstate == 0) return 0;
  RemoteMemory& memory = objects.memory();
  if (t.tstate_local_key) {
    auto key = memory.read_pointer(tstate + t.tstate_local_key);
    auto dicts = memory.read_pointer(local + kLocalDicts);
    return key && dicts ? value_of(objects, *dicts, *key) : 0;
  }
  auto key = memory.read_pointer(local + kLocalKey);
  auto dict = memory.read_pointer(tstate + t.tstate_dict);
  std::uint64_t dummy = key && dict ? value_of(objects, *dict, *key) : 0;
  if (!plausible_pointer(dummy)) return 0;
  auto own = memory.read_pointer(dummy + kDummyDict);
  return own.value_or(0);
}

dp_dict_entry find_dict_entry(RemoteObjects& objects, std::uint64_t dict, std::string_view name) {
  dp_dict_entry found = {};
  auto address = plausible_pointer(dict)
                     ? objects.memory().read_pointer(dict + objects.layout().dict_keys)
                     : std::nullopt;
  auto keys = address ? objects.dict_keys(*address) : std::nullopt;
  auto entry = keys ? objects.find_entry(*keys, 0, name) : std::nullopt;
  if (!entry || keys->value_offset != keys->key_offset + 8) return found;
  found.dict = dict;
  found.keys = *address;
  found.entry = keys->entries + std::uint64_t{entry->index} * keys->entry_size + keys->key_offset;
  found.key = entry->key;
  return found;
}

std::uint64_t entry_value(RemoteObjects& objects, const dp_dict_entry& entry) {
  if (entry.entry == 0) return 0;
  RemoteMemory& memory = objects.memory();
  auto keys = memory.read<std::uint64_t>(entry.dict + objects.layout().dict_keys);
  auto key = memory.read<std::uint64_t>(entry.entry);
  auto value = memory.read<std::uint64_t>(entry.entry + 8);
  if (keys != entry.keys || key != entry.key || !value) return 0;
  return *value;
}

}  // namespace

TorchLocals find_torch_locals(RemoteObjects& objects, const PythonRuntime& runtime) {
  TorchLocals locals;
  RemoteValues values(objects, runtime);
  if (auto guards = objects.find_module(runtime.main_interpreter, "torch._guards")) {
    auto local = objects.module_get(*guards, "_TLS");
    if (local && values.is_a(*local, "_thread._local")) locals.guards = *local;
  }
  if (auto utils = objects.find_module(runtime.main_interpreter, "torch._dynamo.utils")) {
    auto log = objects.module_get(*utils, "CHROMIUM_EVENT_LOG");
    auto local = log && !values.is_none(*log) ? values.attribute(*log, "tls") : std::nullopt;
    if (local && values.is_a(*local, "_thread._local")) locals.event_log = *local;
  }
  return locals;
}

std::uint64_t thread_local_value(RemoteObjects& objects, std::uint64_t local, std::uint64_t tstate,
                                 std::string_view name) {
  return entry_value(objects, find_dict_entry(objects, local_dict(objects, local, tstate), name));
}

dp_torch_thread find_torch_thread(RemoteObjects& objects, const TorchLocals& locals,
                                  std::uint64_t tstate) {
  dp_torch_thread thread = {};
  thread.context =
      find_dict_entry(objects, local_dict(objects, locals.guards, tstate), "compile_context");
  thread.phases = find_dict_entry(objects, local_dict(objects, locals.event_log, tstate), "stack");
  return thread;
}

namespace {

// How many phases torch's list of open ones has; nullopt: torn, or no list.
std::optional<std::uint64_t> phase_count(RemoteObjects& objects, std::uint64_t list) {
  const PythonLayout& t = objects.layout();
  if (!plausible_pointer(list)) return std::nullopt;
  auto kind = objects.type_of(list);
  if (!kind || objects.type_name(*kind) != "list") return std::nullopt;
  auto size = objects.memory().read<std::uint64_t>(list + t.object_size);
  if (!size || *size > kMaxPhases) return std::nullopt;
  return size;
}

// 0: no compile is open; nullopt: torn.
std::optional<std::uint64_t> open_context(RemoteObjects& objects, const dp_torch_thread& thread,
                                          std::uint64_t none) {
  if (!thread.context.entry) return 0;
  const std::uint64_t context = entry_value(objects, thread.context);
  if (context == 0) return std::nullopt;
  return context == none ? 0 : context;
}

}  // namespace

std::optional<TorchThreadState> read_torch_thread(RemoteObjects& objects,
                                                  const dp_torch_thread& thread,
                                                  std::uint64_t none) {
  TorchThreadState state;
  auto context = open_context(objects, thread, none);
  if (!context) return std::nullopt;
  state.context = *context;
  if (!thread.phases.entry) return state;
  state.phase_list = entry_value(objects, thread.phases);
  auto size = phase_count(objects, state.phase_list);
  if (!size) return std::nullopt;
  if (*size == 0) return state;
  RemoteMemory& memory = objects.memory();
  auto items = memory.read_pointer(state.phase_list + objects.layout().list_items);
  std::vector<std::uint64_t> names(*size);
  if (!items || !memory.read(*items, std::as_writable_bytes(std::span(names)))) return std::nullopt;
  for (std::uint64_t name : names) {
    auto text = objects.read_str(name, kMaxPhaseName);
    if (!text) return std::nullopt;
    state.phases.push_back(std::move(*text));
  }
  return state;
}

std::optional<TorchThreadIds> read_torch_thread_ids(RemoteObjects& objects,
                                                    const dp_torch_thread& thread,
                                                    std::uint64_t none) {
  TorchThreadIds ids;
  auto context = open_context(objects, thread, none);
  if (!context) return std::nullopt;
  ids.context = *context;
  if (!thread.phases.entry) return ids;
  auto size = phase_count(objects, entry_value(objects, thread.phases));
  if (!size) return std::nullopt;
  ids.open_phases = *size;
  return ids;
}

std::optional<TorchIds> read_compile_context(RemoteObjects& objects, const dp_torch_layout& layout,
                                             std::uint64_t none, std::uint64_t context) {
  if (!plausible_pointer(context) || objects.type_of(context) != layout.compile_context_type)
    return std::nullopt;
  RemoteMemory& memory = objects.memory();
  auto is_id = [&](const std::optional<std::uint64_t>& object) {
    return object && (*object == none || objects.type_of(*object) == layout.compile_id_type);
  };
  auto id = follow_path(memory, context, layout.context_id);
  auto attempt = follow_path(memory, context, layout.context_attempt);
  if (!is_id(id)) {  // the instance has a dictionary of its own
    id = follow_path(memory, context, layout.context_id_dict);
    attempt = follow_path(memory, context, layout.context_attempt_dict);
  }
  if (!is_id(id)) return std::nullopt;
  TorchIds ids;
  if (*id == none) return ids;
  auto number = [&](std::uint64_t object, const dp_path& path, std::int32_t& out) {
    if (path.steps == 0) return true;
    auto value = follow_path(memory, object, path);
    if (value == none) return true;
    auto read = value ? objects.read_int(*value) : std::nullopt;
    if (!read || *read < 0 || *read > INT32_MAX) return false;
    out = static_cast<std::int32_t>(*read);
    return true;
  };
  bool good = number(*id, layout.id_autograd, ids.autograd_id) &&
              number(*id, layout.id_frame, ids.frame_id) &&
              number(*id, layout.id_compile, ids.compile_id);
  if (!good) return std::nullopt;
  if (auto value = attempt ? objects.read_int(*attempt) : std::nullopt)
    if (*value >= 0 && *value <= INT32_MAX) ids.attempt = static_cast<std::int32_t>(*value);
  return ids;
}

std::string read_phase_name(RemoteObjects& objects, const dp_phase_name& name) {
  constexpr std::uint32_t kStrHash = 24;
  if (!plausible_pointer(name.object)) return {};
  auto text = objects.read_str(name.object, kMaxPhaseName);
  auto hash = objects.memory().read<std::uint64_t>(name.object + kStrHash);
  if (!text || hash != name.hash) return {};
  return std::move(*text);
}

std::map<pid_t, std::uint64_t> thread_states(RemoteObjects& objects, const PythonRuntime& runtime) {
  std::unordered_map<std::uint64_t, std::uint64_t> by_native;
  for (const RemoteThread& thread : walk_interpreters(objects, runtime.runtime).threads) {
    if (thread.interpreter != runtime.main_interpreter) continue;
    std::uint64_t native = thread.native_id;
    if (plausible_pointer(thread.pthread))
      if (auto tid = objects.memory().read<std::int32_t>(thread.pthread + kPthreadTid))
        if (*tid > 0 && (native == 0 || native == static_cast<std::uint64_t>(*tid)))
          native = static_cast<std::uint64_t>(*tid);
    if (native != 0) by_native[native] = thread.tstate;
  }
  std::map<pid_t, std::uint64_t> states;
  auto tids = list_threads(runtime.pid);
  if (!tids) return states;
  for (pid_t tid : *tids) {
    auto ids = namespace_ids(runtime.pid, tid);
    if (ids.empty()) continue;
    auto at = by_native.find(static_cast<std::uint64_t>(ids.back()));
    if (at != by_native.end()) states[tid] = at->second;
  }
  return states;
}

}  // namespace dynprof
