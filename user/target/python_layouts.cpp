#include "user/target/python_layouts.h"

#include <fmt/format.h>

#include <array>

namespace dynprof {
namespace {

constexpr std::uint8_t kNoShim = 0xff;

constexpr PythonLayout make_310() {
  PythonLayout t;
  t.python = python_version(3, 10);
  t.bpf.tstate_thread_id = 176;
  t.bpf.tstate_interp = 16;
  t.bpf.tstate_frame = 24;
  t.bpf.cframe_frame = DP_NO_OFFSET;
  t.bpf.cframe_previous = DP_NO_OFFSET;
  t.bpf.frame_base = 24;  // f_back; the object's head and size are not needed
  t.bpf.frame_previous = 0;
  t.bpf.frame_code = 8;
  t.bpf.frame_instr = 72;  // f_lasti at 96
  t.bpf.frame_owner = DP_NO_OFFSET;
  t.bpf.frame_is_entry = DP_NO_OFFSET;
  t.bpf.frame_localsplus = 352;
  t.bpf.code_base = 40;
  t.bpf.code_firstlineno = 0;
  t.bpf.code_filename = 64;
  t.bpf.code_name = 72;
  t.bpf.code_qualname = DP_NO_OFFSET;
  t.bpf.code_linetable = 80;
  t.bpf.code_instructions = DP_NO_OFFSET;
  t.bpf.instr_is_index = 1;
  t.bpf.shim_owner = kNoShim;
  t.bpf.code_tag_mask = 0;
  t.bpf.long_tag_shift = 0;
  t.runtime_interpreters_head = 32;
  t.interpreter_size = 113528;
  t.interpreter_next = 0;
  t.interpreter_threads_head = 8;
  t.interpreter_id = 24;
  t.interpreter_modules = 856;
  t.tstate_dict = 152;
  t.code_consts = 56;
  t.code_flags = 36;
  t.code_argcount = 16;
  t.code_kwonlyargcount = 24;
  t.code_varnames = 72;
  t.code_freevars = 80;
  t.code_cellvars = 88;
  t.type_cached_keys = 872;
  t.unicode_ascii_data = 48;
  t.unicode_compact_data = 72;
  t.dict_keys_log2 = false;
  t.dict_keys_nentries = 32;
  t.dict_keys_indices = 40;
  t.instance = PythonLayout::Instance::kDictOffset;
  return t;
}

constexpr PythonLayout make_311() {
  PythonLayout t;
  t.python = python_version(3, 11);
  t.bpf.tstate_thread_id = 152;
  t.bpf.tstate_interp = 16;
  t.bpf.tstate_frame = 56;  // cframe
  t.bpf.cframe_frame = 8;
  t.bpf.cframe_previous = 16;
  t.bpf.frame_base = 0;
  t.bpf.frame_code = 32;
  t.bpf.frame_previous = 48;
  t.bpf.frame_instr = 56;
  t.bpf.frame_owner = 69;
  t.bpf.frame_is_entry = 68;
  t.bpf.frame_localsplus = 72;
  t.bpf.code_base = 72;
  t.bpf.code_firstlineno = 0;
  t.bpf.code_filename = 40;
  t.bpf.code_name = 48;
  t.bpf.code_qualname = 56;
  t.bpf.code_linetable = 64;
  t.bpf.code_instructions = 184;
  t.bpf.instr_is_index = 0;
  t.bpf.shim_owner = kNoShim;
  t.bpf.code_tag_mask = 0;
  t.bpf.long_tag_shift = 0;
  t.runtime_interpreters_head = 40;
  t.interpreter_size = 107752;
  t.interpreter_next = 0;
  t.interpreter_threads_head = 16;
  t.interpreter_id = 48;
  t.interpreter_modules = 888;
  t.tstate_native_thread_id = 160;
  t.tstate_dict = 128;
  t.code_consts = 24;
  t.code_flags = 48;
  t.code_argcount = 56;
  t.code_kwonlyargcount = 64;
  t.code_localsplusnames = 96;
  t.code_localspluskinds = 104;
  t.type_cached_keys = 872;
  t.unicode_ascii_data = 48;
  t.unicode_compact_data = 72;
  t.instance = PythonLayout::Instance::kValuesBefore;
  return t;
}

constexpr PythonLayout make_312() {
  PythonLayout t;
  t.python = python_version(3, 12);
  t.bpf.tstate_thread_id = 136;
  t.bpf.tstate_interp = 16;
  t.bpf.tstate_frame = 56;  // cframe
  t.bpf.cframe_frame = 0;
  t.bpf.cframe_previous = 8;
  t.bpf.frame_base = 0;
  t.bpf.frame_code = 0;
  t.bpf.frame_previous = 8;
  t.bpf.frame_instr = 56;
  t.bpf.frame_owner = 70;
  t.bpf.frame_is_entry = DP_NO_OFFSET;
  t.bpf.frame_localsplus = 72;
  t.bpf.code_base = 64;
  t.bpf.code_firstlineno = 4;
  t.bpf.code_filename = 48;
  t.bpf.code_name = 56;
  t.bpf.code_qualname = 64;
  t.bpf.code_linetable = 72;
  t.bpf.code_instructions = 192;
  t.bpf.instr_is_index = 0;
  t.bpf.shim_owner = 3;  // FRAME_OWNED_BY_CSTACK
  t.bpf.code_tag_mask = 0;
  t.bpf.long_tag_shift = 3;
  t.runtime_interpreters_head = 40;
  t.interpreter_size = 194968;
  t.interpreter_next = 0;
  t.interpreter_threads_head = 72;
  t.interpreter_id = 8;
  t.interpreter_modules = 944;
  t.tstate_native_thread_id = 144;
  t.tstate_dict = 112;
  t.code_consts = 24;
  t.code_flags = 48;
  t.code_argcount = 52;
  t.code_kwonlyargcount = 60;
  t.code_localsplusnames = 96;
  t.code_localspluskinds = 104;
  t.type_cached_keys = 880;
  t.unicode_ascii_data = 40;
  t.unicode_compact_data = 56;
  t.instance = PythonLayout::Instance::kTaggedBefore;
  return t;
}

constexpr PythonLayout make_313() {
  PythonLayout t = make_312();
  t.python = python_version(3, 13);
  t.bpf.tstate_thread_id = 152;
  t.bpf.tstate_frame = 72;  // current_frame
  t.bpf.cframe_frame = DP_NO_OFFSET;
  t.bpf.cframe_previous = DP_NO_OFFSET;
  t.bpf.code_instructions = 200;
  t.runtime_interpreters_head = 632;
  t.interpreter_size = 383552;
  t.interpreter_next = 7264;
  t.interpreter_threads_head = 7344;
  t.interpreter_id = 7272;
  t.interpreter_modules = 7656;
  t.tstate_native_thread_id = 160;
  t.tstate_dict = 128;
  t.dict_values_header = 8;
  t.instance = PythonLayout::Instance::kInline;
  return t;
}

constexpr std::array<PythonLayout, 4> kMeasured = {make_310(), make_311(), make_312(), make_313()};

// The single reads of the walker; limits.h.
constexpr bool fits(const PythonLayout& t) {
  const dp_python_layout& b = t.bpf;
  return b.frame_code + 8 <= DP_FRAME_READ_BYTES && b.frame_previous + 8 <= DP_FRAME_READ_BYTES &&
         b.frame_instr + (b.instr_is_index ? 4 : 8) <= DP_FRAME_READ_BYTES &&
         (b.frame_owner == DP_NO_OFFSET || b.frame_owner < DP_FRAME_READ_BYTES) &&
         (b.frame_is_entry == DP_NO_OFFSET || b.frame_is_entry < DP_FRAME_READ_BYTES) &&
         b.code_firstlineno + 4 <= DP_CODE_READ_BYTES &&
         b.code_filename + 8 <= DP_CODE_READ_BYTES && b.code_name + 8 <= DP_CODE_READ_BYTES &&
         (b.code_qualname == DP_NO_OFFSET || b.code_qualname + 8 <= DP_CODE_READ_BYTES) &&
         b.code_linetable + 8 <= DP_CODE_READ_BYTES;
}
static_assert(fits(kMeasured[0]) && fits(kMeasured[1]) && fits(kMeasured[2]) && fits(kMeasured[3]));

}  // namespace

std::string supported_versions() {
  return fmt::format("3.{} to 3.{}", kMinSupportedMinor, kMaxSupportedMinor);
}

const PythonLayout* measured_layout(std::uint16_t python) {
  for (const PythonLayout& layout : kMeasured) {
    if (layout.python == python) return &layout;
  }
  return nullptr;
}

Result<void> validate_layout(const PythonLayout& layout) {
  if (!fits(layout)) {
    return error(
        fmt::format("the frame or code object of this Python {}.{} build is laid out too "
                    "widely for one read",
                    layout.major(), layout.minor()));
  }
  struct Needed {
    const char* name;
    std::uint32_t offset;
  };
  const Needed needed[] = {
      {"runtime.interpreters.head", layout.runtime_interpreters_head},
      {"interpreter.threads.head", layout.interpreter_threads_head},
      {"interpreter.modules", layout.interpreter_modules},
      {"thread.thread_id", layout.bpf.tstate_thread_id},
      {"thread.interp", layout.bpf.tstate_interp},
      {"thread.frame", layout.bpf.tstate_frame},
      {"frame.localsplus", layout.bpf.frame_localsplus},
      {"str data", layout.unicode_ascii_data},
  };
  for (const Needed& field : needed) {
    if (field.offset == 0) {
      return error(fmt::format("the layout of Python {}.{} has no {}", layout.major(),
                               layout.minor(), field.name));
    }
  }
  return {};
}

}  // namespace dynprof
