// Prints what user/target finds out about a process, one fact per line, "key value": for tests.
//   target_dump PID [frames] [torch] [markers]
// Text of the target is escaped as in a C string, so that a line stays a line.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>

#include "user/target/code_reader.h"
#include "user/target/marker_rules.h"
#include "user/target/python_runtime.h"
#include "user/target/torch_lacks.h"
#include "user/target/torch_layout.h"

namespace dynprof {
namespace {

std::string escaped(std::string_view text) {
  std::string safe;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || c == '\\' || c == '|') {
      safe += fmt::format("\\x{:02x}", byte);
    } else {
      safe += c;
    }
  }
  return safe;
}

const char* fault_name(PythonFault fault) {
  switch (fault) {
    case PythonFault::kNone:
      return "none";
    case PythonFault::kNoProcess:
      return "no-process";
    case PythonFault::kNotReadable:
      return "not-readable";
    case PythonFault::kNotPython:
      return "not-python";
    case PythonFault::kUnsupported:
      return "unsupported";
    case PythonFault::kStarting:
      return "starting";
    case PythonFault::kBadLayout:
      return "bad-layout";
    case PythonFault::kNoThreadState:
      return "no-thread-state";
  }
  return "?";
}

void dump_runtime(const PythonRuntime& runtime) {
  fmt::print("version {}\nimage {}\nfound_by {}\n", runtime.version, escaped(runtime.image_path),
             escaped(runtime.found_by));
  fmt::print("interpreters {}\nthreads {}\n", runtime.interpreters.size(), runtime.threads.size());
  fmt::print("tstate_offset {} {}/{}\n", runtime.tstate_offset->offset,
             runtime.tstate_offset->agree, runtime.tstate_offset->asked);
  fmt::print("known_types {} {} {} {} {}\n", runtime.long_type != 0, runtime.cell_type != 0,
             runtime.code_type != 0, runtime.str_type != 0, runtime.none != 0);
  fmt::print("found runtime={:#x} long={:#x} cell={:#x} code={:#x} str={:#x} none={:#x}\n",
             runtime.runtime, runtime.long_type, runtime.cell_type, runtime.code_type,
             runtime.str_type, runtime.none);
}

// Every thread's stack, leaf first, all code objects in one batch.
void dump_frames(RemoteObjects& objects, const PythonRuntime& runtime) {
  CodeReader reader(objects, runtime.code_type);
  for (const RemoteThread& thread : runtime.threads) {
    auto frames = walk_frames(objects, thread.tstate, 4096);
    fmt::print("thread {} interpreter_main={} frames={}\n", thread.native_id,
               thread.interpreter == runtime.main_interpreter,
               frames ? fmt::format("{}", frames->size()) : "torn");
    if (!frames) continue;
    std::vector<CodeRequest> requests;
    for (const RemoteFrame& frame : *frames) requests.push_back({frame.code, {}});
    auto begin = std::chrono::steady_clock::now();
    std::vector<RemoteCode> codes = reader.read_many(requests);
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    for (const RemoteCode& code : codes) {
      fmt::print("frame {}|{}|{}|{}|{}|{}\n", static_cast<int>(code.unreadable),
                 escaped(code.filename), code.first_line, escaped(code.name),
                 escaped(code.qualname), code.line_table.size());
      auto locals = reader.read_locals(code.address);
      fmt::print("locals");
      if (!locals) fmt::print(" unreadable");
      for (const LocalName& local : locals.value_or(std::vector<LocalName>())) {
        fmt::print(" {}:{:02x}", escaped(local.name), local.kind);
      }
      fmt::print("\n");
    }
    fmt::print("read_us {:.1f} {}\n", took.count(), codes.size());
  }
}

std::string path_text(const dp_path& path) {
  std::string text = "-";
  for (int i = 0; i < path.steps; ++i) text += fmt::format("{}{}", i ? "," : "", path.offset[i]);
  return path.steps == 0 ? text : text.substr(1);
}

void dump_torch(RemoteObjects& objects, const PythonRuntime& runtime) {
  auto torch = resolve_torch(objects, runtime);
  if (!torch) {
    fmt::print("torch none\n");
    return;
  }
  const dp_torch_layout& t = torch->layout;
  fmt::print("torch {}\ntorch_complete {}\ntorch_missing {}\n", escaped(torch->version),
             torch->complete, torch->missing);
  fmt::print("torch_paths frame={} compile={} autograd={} context_id={} context_attempt={}\n",
             path_text(t.id_frame), path_text(t.id_compile), path_text(t.id_autograd),
             path_text(t.context_id), path_text(t.context_attempt));
  for (const std::string& what : torch_lacks(objects, runtime)) fmt::print("lacks {}\n", what);
}

// The ids of one marker frame, read as the kernel side reads them.
class MarkerDump {
 public:
  MarkerDump(RemoteObjects& objects, const PythonRuntime& runtime)
      : objects_(objects), runtime_(runtime) {
    if (auto torch = resolve_torch(objects, runtime)) torch_ = torch->layout;
  }

  void print(const ResolvedMarker& marker, std::uint64_t frame) {
    std::uint64_t object = local(frame, marker.marker.slot);
    auto code = marker.marker.code_slot == DP_NO_OFFSET ? 0 : local(frame, marker.marker.code_slot);
    CodeReader reader(objects_, runtime_.code_type);
    std::string user = code == 0 ? "-" : reader.read(code).qualname;
    switch (marker.marker.kind) {
      case DP_MARKER_COMPILE:
        fmt::print("marker compile {} user={}\n", compile_id(object), escaped(user));
        break;
      case DP_MARKER_ATTEMPT:
        fmt::print("marker attempt {}\n", integer(object));
        break;
      case DP_MARKER_BACKWARD: {
        auto id = follow_path(objects_.memory(), object, torch_.context_id);
        auto attempt = follow_path(objects_.memory(), object, torch_.context_attempt);
        if (!id || objects_.type_of(*id) != torch_.compile_id_type) {
          id = follow_path(objects_.memory(), object, torch_.context_id_dict);
          attempt = follow_path(objects_.memory(), object, torch_.context_attempt_dict);
        }
        bool typed = objects_.type_of(object) == torch_.compile_context_type;
        fmt::print("marker backward {} attempt={} typed={}\n", compile_id(id.value_or(0)),
                   integer(attempt.value_or(0)), typed);
        break;
      }
      default:
        break;
    }
  }

 private:
  std::uint64_t local(std::uint64_t frame, std::uint16_t slot) {
    const dp_python_layout& b = runtime_.layout.bpf;
    std::uint64_t place = frame + b.frame_localsplus + std::uint64_t{slot} * 8;
    std::uint64_t object = objects_.memory().read<std::uint64_t>(place).value_or(0);
    object &= ~std::uint64_t{b.code_tag_mask};
    if (object != 0 && objects_.type_of(object) == runtime_.cell_type) {
      object = objects_.memory().read<std::uint64_t>(object + 16).value_or(0);
    }
    return object;
  }
  std::string integer(std::uint64_t object) {
    if (object == runtime_.none) return "None";
    if (objects_.type_of(object) != runtime_.long_type) return "?";
    auto value = objects_.read_int(object);
    return value ? fmt::format("{}", *value) : "?";
  }
  std::string compile_id(std::uint64_t object) {
    if (objects_.type_of(object) != torch_.compile_id_type) return "?";
    auto part = [&](const dp_path& path) {
      if (path.steps == 0) return std::string("-");
      return integer(follow_path(objects_.memory(), object, path).value_or(0));
    };
    return fmt::format("autograd={} frame={} compile={}", part(torch_.id_autograd),
                       part(torch_.id_frame), part(torch_.id_compile));
  }

  RemoteObjects& objects_;
  const PythonRuntime& runtime_;
  dp_torch_layout torch_{};
};

void dump_markers(RemoteObjects& objects, const PythonRuntime& runtime) {
  auto markers = resolve_markers(objects, runtime);
  for (const ResolvedMarker& marker : markers) {
    fmt::print("resolved {} {} slot={} code_slot={}\n", marker.rule->qualname, marker.rule->local,
               marker.marker.slot, marker.marker.code_slot);
  }
  CodeReader reader(objects, runtime.code_type);
  MarkerDump dump(objects, runtime);
  for (const RemoteThread& thread : runtime.threads) {
    auto frames = walk_frames(objects, thread.tstate, 4096);
    if (!frames) continue;
    for (const RemoteFrame& frame : *frames) {
      // Both ways have to agree: by sys.modules, and by the code object seen in a frame.
      auto seen = match_marker(reader, reader.read(frame.code), runtime.layout.python);
      bool known = false;
      for (const ResolvedMarker& marker : markers) {
        if (marker.code != frame.code) continue;
        known = seen && seen->marker.slot == marker.marker.slot &&
                seen->marker.identity == marker.marker.identity;
      }
      if (seen) {
        dump.print(*seen, frame.frame);
        fmt::print("marker_resolved_too {}\n", known);
      }
    }
  }
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: target_dump PID [frames] [torch] [markers]\n");
    return 2;
  }
  pid_t pid = std::atoi(argv[1]);
  PythonDiscovery details;
  auto runtime = discover_python(pid, &details);
  fmt::print("fault {}\nretryable {}\n", fault_name(details.fault), details.retryable());
  if (!runtime) {
    fmt::print("version {}\nerror {}\nhint {}\n", details.version, escaped(runtime.error().what),
               escaped(runtime.error().hint));
    return 1;
  }
  dump_runtime(*runtime);
  ProcessMemory memory(pid);
  RemoteObjects objects(memory, runtime->layout);
  objects.set_str_type(runtime->str_type);
  for (int i = 2; i < argc; ++i) {
    std::string_view what = argv[i];
    if (what == "frames") dump_frames(objects, *runtime);
    if (what == "torch") dump_torch(objects, *runtime);
    if (what == "markers") dump_markers(objects, *runtime);
  }
  return 0;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) { return dynprof::run(argc, argv); }
