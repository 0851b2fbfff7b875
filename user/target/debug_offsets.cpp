// _Py_DebugOffsets: CPython 3.13+ puts a description of itself at the start of _PyRuntime
// (Include/internal/pycore_runtime.h in 3.13, pycore_debug_offsets.h from 3.14 on). It is a sequence of
// u64; later versions insert fields, so the order is given here for each version.
#include <fmt/format.h>

#include <cstring>
#include <initializer_list>

#include "user/target/python_layouts.h"

namespace dynprof {
namespace {

// One field: where its number goes (null: skipped), whether it may be absent (0 in the struct).
struct Reader {
  std::span<const std::byte> bytes;
  std::size_t position = 0;
  std::string problem;

  std::uint64_t next() {
    std::uint64_t value = 0;
    if (position + sizeof value > bytes.size()) {
      if (problem.empty()) problem = "it is cut short";
      return 0;
    }
    std::memcpy(&value, bytes.data() + position, sizeof value);
    position += sizeof value;
    return value;
  }
  void skip(int fields) {
    for (int i = 0; i < fields; ++i) next();
  }
  // The size of a struct: the bound of the fields after it.
  std::uint32_t size(const char* name, std::uint64_t limit) {
    std::uint64_t value = next();
    if ((value == 0 || value > limit) && problem.empty()) {
      problem = fmt::format("the size of {} is {}", name, value);
    }
    return static_cast<std::uint32_t>(value);
  }
  // A field of `width` bytes inside a struct of `size` bytes.
  std::uint32_t field(const char* name, std::uint32_t struct_size, std::uint32_t width) {
    std::uint64_t value = next();
    if ((value > struct_size || value + width > struct_size || value % width != 0) &&
        problem.empty()) {
      problem = fmt::format("{} is at {} of {}", name, value, struct_size);
    }
    return static_cast<std::uint32_t>(value);
  }
};

constexpr std::uint32_t kMaxStruct = 1U << 24;

std::uint16_t narrow(std::uint32_t offset, std::string& problem, const char* name) {
  if (offset >= DP_NO_OFFSET && problem.empty()) problem = fmt::format("{} is at {}", name, offset);
  return static_cast<std::uint16_t>(offset);
}

}  // namespace

Result<DebugOffsets> parse_debug_offsets(std::span<const std::byte> runtime) {
  if (runtime.size() < kDebugCookie.size() ||
      std::memcmp(runtime.data(), kDebugCookie.data(), kDebugCookie.size()) != 0) {
    return error("_PyRuntime does not begin with _Py_DebugOffsets");
  }
  Reader in{runtime, kDebugCookie.size(), {}};
  DebugOffsets found;
  std::uint64_t version = in.next();
  std::uint64_t free_threaded = in.next();
  found.hex_version = static_cast<std::uint32_t>(version);
  std::uint16_t python = static_cast<std::uint16_t>(version >> 16);
  if (version >> 32 != 0 || python < python_version(3, 13) || free_threaded > 1) {
    return error(fmt::format("_Py_DebugOffsets names version {:#x}", version));
  }
  const PythonLayout* measured = measured_layout(python);
  if (!measured) {
    return error(
        fmt::format("_Py_DebugOffsets of Python {}.{} is not known", python >> 8, python & 0xff));
  }
  const bool since_314 = python >= python_version(3, 14);
  const bool since_315 = python >= python_version(3, 15);
  if (since_314 && free_threaded != 0) {
    return error(
        fmt::format("Python {}.{} is free-threaded: its threads run copies of the bytecode, "
                    "whose lines cannot be found",
                    python >> 8, python & 0xff));
  }

  PythonLayout t = *measured;
  t.free_threaded = free_threaded != 0;

  std::uint32_t size = in.size("_PyRuntime", kMaxStruct);
  in.skip(1);  // finalizing
  t.runtime_interpreters_head = in.field("interpreters_head", size, 8);

  size = t.interpreter_size = in.size("PyInterpreterState", kMaxStruct);
  t.interpreter_id = in.field("interpreter id", size, 8);
  t.interpreter_next = in.field("interpreter next", size, 8);
  t.interpreter_threads_head = in.field("threads_head", size, 8);
  if (since_314) in.skip(1);  // threads_main
  in.skip(1);                 // gc
  t.interpreter_modules = in.field("imports_modules", size, 8);
  in.skip(2);  // sysdict, builtins
  t.interpreter_gil = in.field("ceval_gil", size, 8);
  in.skip(4);                 // gil_runtime_state and three of its
  if (since_314) in.skip(2);  // code_object_generation, tlbc_generation

  size = in.size("PyThreadState", 1U << 16);
  in.skip(1);  // prev
  t.tstate_next = in.field("thread next", size, 8);
  t.bpf.tstate_interp = narrow(in.field("thread interp", size, 8), in.problem, "thread interp");
  t.bpf.tstate_frame = narrow(in.field("current_frame", size, 8), in.problem, "current_frame");
  if (since_315) in.skip(3);  // base_frame, last_profiled_frame and its number
  t.bpf.tstate_thread_id = narrow(in.field("thread_id", size, 8), in.problem, "thread_id");
  t.tstate_native_thread_id = in.field("native_thread_id", size, 8);
  in.skip(2);  // datastack_chunk, status
  if (since_315)
    in.skip(5);  // holds_gil, gil_requested, current_exception, exc_state; err_stackitem

  size = in.size("_PyInterpreterFrame", 4096);
  t.bpf.frame_previous = narrow(in.field("frame previous", size, 8), in.problem, "previous");
  t.bpf.frame_code = narrow(in.field("frame executable", size, 8), in.problem, "executable");
  t.bpf.frame_instr = narrow(in.field("frame instr_ptr", size, 8), in.problem, "instr_ptr");
  t.bpf.frame_localsplus = narrow(in.field("frame localsplus", size, 8), in.problem, "localsplus");
  t.bpf.frame_owner = narrow(in.field("frame owner", size, 1), in.problem, "owner");
  if (since_314) in.skip(2);  // stackpointer, tlbc_index

  size = in.size("PyCodeObject", 4096);
  std::uint32_t filename = in.field("code filename", size, 8);
  std::uint32_t name = in.field("code name", size, 8);
  std::uint32_t qualname = in.field("code qualname", size, 8);
  std::uint32_t linetable = in.field("code linetable", size, 8);
  std::uint32_t firstlineno = in.field("code firstlineno", size, 4);
  t.code_argcount = in.field("code argcount", size, 4);
  t.code_localsplusnames = in.field("code localsplusnames", size, 8);
  t.code_localspluskinds = in.field("code localspluskinds", size, 8);
  t.bpf.code_instructions =
      narrow(in.field("co_code_adaptive", size, 1), in.problem, "co_code_adaptive");
  if (since_314) in.skip(1);  // co_tlbc
  std::uint32_t base = firstlineno / 8 * 8;
  for (std::uint32_t field : {filename, name, qualname, linetable}) {
    if (field < base || field + 8 > base + DP_CODE_READ_BYTES) {
      if (in.problem.empty()) in.problem = "the code object is too wide for one read";
    }
  }
  t.bpf.code_base = static_cast<std::uint16_t>(base);
  t.bpf.code_firstlineno = static_cast<std::uint16_t>(firstlineno - base);
  t.bpf.code_filename = static_cast<std::uint16_t>(filename - base);
  t.bpf.code_name = static_cast<std::uint16_t>(name - base);
  t.bpf.code_qualname = static_cast<std::uint16_t>(qualname - base);
  t.bpf.code_linetable = static_cast<std::uint16_t>(linetable - base);
  // _Py_DebugOffsets does not have co_version: from 3.12 to 3.15 it is the word before co_localsplusnames.
  const std::uint32_t names = t.code_localsplusnames;
  t.bpf.code_version = names >= base + 4 && names <= base + DP_CODE_READ_BYTES
                           ? static_cast<std::uint16_t>(names - 4 - base)
                           : DP_NO_OFFSET;

  t.object_size = in.size("PyObject", 64);
  t.object_type = in.field("ob_type", t.object_size, 8);
  size = in.size("PyTypeObject", 4096);
  t.type_name = in.field("tp_name", size, 8);
  in.skip(1);  // tp_repr
  t.type_flags = in.field("tp_flags", size, 8);
  if (since_315) {
    t.type_basicsize = in.field("tp_basicsize", size, 8);
    t.type_dictoffset = in.field("tp_dictoffset", size, 8);
    size = in.size("PyHeapTypeObject", 4096);
    t.type_cached_keys = in.field("ht_cached_keys", size, 8);
  }
  size = in.size("PyTupleObject", 4096);
  // ob_item is an array the size may or may not count; only its place is bounded.
  t.tuple_items = static_cast<std::uint32_t>(in.next());
  in.skip(1);
  if (t.tuple_items > 256 && in.problem.empty()) in.problem = "tuple items are far away";
  size = in.size("PyListObject", 4096);
  t.list_items = in.field("list items", size, 8);
  in.skip(1);
  if (since_314) {
    size = in.size("PySetObject", 4096);
    t.set_used = in.field("set used", size, 8);
    t.set_table = in.field("set table", size, 8);
    t.set_mask = in.field("set mask", size, 8);
  }
  size = in.size("PyDictObject", 4096);
  t.dict_keys = in.field("ma_keys", size, 8);
  t.dict_values = in.field("ma_values", size, 8);
  size = in.size("PyFloatObject", 4096);
  t.float_value = in.field("ob_fval", size, 8);
  size = in.size("PyLongObject", 4096);
  in.skip(1);  // lv_tag: at object_size
  t.long_digits = in.field("ob_digit", size, 4);
  size = in.size("PyBytesObject", 4096);
  in.skip(1);
  t.bytes_data = in.field("ob_sval", size, 1);
  size = in.size("PyUnicodeObject", 4096);
  t.unicode_state = in.field("unicode state", size, 4);
  t.unicode_length = in.field("unicode length", size, 8);
  t.unicode_ascii_data = in.size("PyASCIIObject", size);
  t.unicode_compact_data =  // utf8_length, utf8
      since_315 ? in.size("PyCompactUnicodeObject", size) : t.unicode_ascii_data + 16;

  // Fields that the struct leaves out: those of the default build, moved by what the object head has grown (the head of a
  // free-threaded build has 32 bytes instead of 16).
  std::uint32_t grown = t.object_size - 16;
  if (t.object_size < 16 && in.problem.empty()) in.problem = "PyObject is too small";
  for (std::uint32_t* field :
       {&t.code_consts, &t.code_flags, &t.code_kwonlyargcount, &t.function_code,
        &t.function_closure, &t.function_dict, &t.cell_value, &t.method_function, &t.module_dict,
        &t.type_basicsize, &t.type_base, &t.type_dict, &t.type_dictoffset, &t.member_descriptor_def,
        &t.type_itemsize, &t.dict_used, &t.deque_left_block}) {
    *field += grown;
  }
  if (!since_314) {
    for (std::uint32_t* field : {&t.set_used, &t.set_mask, &t.set_table}) *field += grown;
  }
  // Instances of free-threaded builds are laid out by rules we could not test: leave them alone.
  t.type_cached_keys = t.free_threaded ? 0 : t.type_cached_keys;
  if (!in.problem.empty()) {
    return error(fmt::format("_Py_DebugOffsets is not plausible: {}", in.problem));
  }
  TRY(validate_layout(t));
  found.layout = t;
  return found;
}

}  // namespace dynprof
