// Any bytes as the memory of a Python process: everything that is read of it by pointers must end, ask for
// bounded memory, and return nothing longer than was allowed. memory_image.h says what an input looks
// like; its second byte chooses what the root is taken for.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/python/line_table.h"
#include "tests/fuzz/memory_image.h"
#include "user/generated/find_generated.h"
#include "user/history/compile_history.h"
#include "user/target/bounded_memory.h"
#include "user/target/code_reader.h"
#include "user/target/interpreter_walk.h"
#include "user/target/marker_rules.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_values.h"
#include "user/target/torch_layout.h"
#include "user/target/torch_threads.h"

using namespace dynprof;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kMost = 64;
constexpr std::size_t kCalls = 20'000;
constexpr std::size_t kBytes = std::size_t{64} << 20;

void objects_at(RemoteObjects& objects, std::uint64_t root) {
  if (auto type = objects.type_of(root)) (void)objects.type_name(*type);
  if (auto text = objects.read_str(root, kMost)) DYNPROF_CHECK(text->size() <= 4 * kMost);
  if (auto bytes = objects.read_bytes(root, kMost)) DYNPROF_CHECK(bytes->size() <= kMost);
  if (auto number = objects.read_int(root)) DYNPROF_CHECK(std::abs(*number) < (1LL << 60));
  if (auto items = objects.tuple_items(root, kMost)) DYNPROF_CHECK(items->size() <= kMost);
  if (auto entries = objects.dict_entries(root)) {
    DYNPROF_CHECK(entries->size() <= kMaxDictEntries);
    for (const DictEntry& entry : *entries) {
      std::string name;
      (void)objects.read_str(entry.key, name);
      DYNPROF_CHECK(name.size() <= 4 * kMaxStringLength);
    }
  }
  (void)objects.dict_get(root, "__name__");
  (void)objects.module_get(root, "__name__");
  (void)objects.type_get(root, "__doc__");
  (void)objects.find_module(root, "torch");
}

void values_at(RemoteObjects& objects, const PythonRuntime& runtime, std::uint64_t root) {
  RemoteValues values(objects, runtime);
  (void)values.type_name(root);
  (void)values.is_a(root, "Exception");
  (void)values.value(root, kMost);
  for (auto items : {values.list_items(root, kMost), values.tuple_items(root, kMost),
                     values.deque_items(root, kMost), values.set_items(root, kMost),
                     values.list_tail(root, kMost)}) {
    if (!items) continue;
    DYNPROF_CHECK(items->size() <= kMost);
    DYNPROF_CHECK(values.values(*items, kMost).size() == items->size());
  }
  if (auto entries = values.dict_items(root, kMost)) DYNPROF_CHECK(entries->size() <= kMost);
  (void)values.length(root);
  (void)values.deque_limit(root);
  (void)values.attribute(root, "name");
  if (auto named = values.attributes(root, kMost)) DYNPROF_CHECK(named->size() <= kMost);
}

void code_at(RemoteObjects& objects, const PythonRuntime& runtime, std::uint64_t root) {
  CodeReader reader(objects, runtime.code_type);
  const RemoteCode code = reader.read(root);
  if (code.unreadable == Unreadable::kNo) {
    DYNPROF_CHECK(code.line_table.size() <= kMaxLineTable);
    DYNPROF_CHECK(code.filename.size() <= 4 * kMaxStringLength);
    (void)line_of_unit(runtime.layout.python, code.line_table, code.first_line, 3);
    (void)match_marker(reader, code, runtime.layout.python);
  }
  if (auto locals = reader.read_locals(root)) DYNPROF_CHECK(locals->size() <= kMaxTupleItems);
  const CodeRequest twice[] = {{root, code.identity}, {root + 8, 1}};
  DYNPROF_CHECK(reader.read_many(twice).size() == 2);
}

void thread_at(RemoteObjects& objects, const PythonRuntime& runtime, std::uint64_t tstate) {
  constexpr std::size_t kFrames = 128;
  bool cut_off = false;
  auto frames = walk_frames(objects, tstate, kFrames, &cut_off);
  if (!frames) return;
  DYNPROF_CHECK(frames->size() <= kFrames);
  for (const RemoteFrame& frame : *frames) code_at(objects, runtime, frame.code);
}

void interpreters_at(RemoteObjects& objects, PythonRuntime& runtime, std::uint64_t root) {
  const InterpreterWalk walk = walk_interpreters(objects, root);
  for (const RemoteThread& thread : walk.threads) thread_at(objects, runtime, thread.tstate);
  if (!walk.main()) return;
  runtime.main_interpreter = walk.main()->address;
  (void)find_tstate_offset(objects.memory(), walk.threads, runtime.main_interpreter);
  const TorchLocals locals = find_torch_locals(objects, runtime);
  for (const RemoteThread& thread : walk.threads) {
    const dp_torch_thread found = find_torch_thread(objects, locals, thread.tstate);
    (void)read_torch_thread(objects, found, runtime.none);
  }
}

void torch_at(RemoteObjects& objects, PythonRuntime& runtime, std::uint64_t root) {
  runtime.main_interpreter = root;
  (void)resolve_torch(objects, runtime);
  (void)resolve_markers(objects, runtime);
  (void)resolve_inline_function(objects, runtime);
  if (auto history = read_compile_history(objects, runtime))
    for (const std::string& problem : history->problems) DYNPROF_CHECK(!problem.empty());
  GeneratedLimits limits;
  limits.time = std::chrono::milliseconds(500);
  (void)find_generated(objects, runtime, 0, limits);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  MemoryImageHeader header;
  if (size < sizeof header) return 0;
  std::memcpy(&header, data, sizeof header);
  MemoryImage image(std::span(data, size).subspan(sizeof header));
  const std::uint16_t version = python_version(3, 10 + header.version % 4);
  PythonRuntime runtime;
  runtime.layout = *measured_layout(version);
  runtime.hex_version = static_cast<std::uint32_t>(version) << 16;
  runtime.runtime = header.root;
  runtime.str_type = header.str_type;
  runtime.code_type = header.code_type;
  runtime.none = header.none;
  runtime.long_type = header.long_type;
  BoundedMemory memory(image, kCalls, kBytes);
  RemoteObjects objects(memory, runtime.layout);
  objects.set_str_type(header.str_type);
  switch (header.kind % 7) {
    case 0:
      objects_at(objects, header.root);
      break;
    case 1:
      values_at(objects, runtime, header.root);
      break;
    case 2:
      code_at(objects, runtime, header.root);
      break;
    case 3:
      interpreters_at(objects, runtime, header.root);
      break;
    case 4:
      thread_at(objects, runtime, header.root);
      break;
    case 5:
      torch_at(objects, runtime, header.root);
      break;
    default: {
      std::byte bytes[kDebugOffsetsBytes] = {};
      (void)memory.read(header.root, bytes);
      if (auto offsets = parse_debug_offsets(bytes))
        DYNPROF_CHECK(validate_layout(offsets->layout));
    }
  }
  return 0;
}
