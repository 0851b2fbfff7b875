// CPython 3.10, by offsetof on 3.10.13.
#pragma once

#include "user/target/python_layout.h"

namespace dynprof {

constexpr PythonLayout cpython_310() {
  PythonLayout t;
  t.python = python_version(3, 10);

  t.runtime_interpreters_head = 32;
  t.interpreter_size = 113528;
  t.interpreter_next = 0;
  t.interpreter_threads_head = 8;
  t.interpreter_id = 24;
  t.interpreter_modules = 856;

  t.tstate_dict = 152;
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
  t.bpf.frame_localsplus = 352;
  t.bpf.instr_is_index = 1;
  t.bpf.shim_owner = kNoShimOwner;
  t.bpf.code_tag_mask = 0;
  t.bpf.frame_is_entry = DP_NO_OFFSET;

  t.bpf.code_base = 40;
  t.bpf.code_firstlineno = 0;
  t.bpf.code_filename = 64;
  t.bpf.code_name = 72;
  t.bpf.code_qualname = DP_NO_OFFSET;
  t.bpf.code_linetable = 80;
  t.bpf.code_version = DP_NO_OFFSET;
  t.bpf.code_instructions = DP_NO_OFFSET;
  t.code_code = 48;
  t.code_consts = 56;
  t.code_flags = 36;
  t.code_argcount = 16;
  t.code_kwonlyargcount = 24;
  t.code_varnames = 72;
  t.code_freevars = 80;
  t.code_cellvars = 88;

  t.bpf.long_tag_shift = 0;
  t.type_cached_keys = 872;
  t.unicode_ascii_data = 48;
  t.unicode_compact_data = 72;
  t.dict_keys_log2 = false;
  t.dict_keys_nentries = 32;
  t.dict_keys_indices = 40;
  t.instance = PythonLayout::Instance::kDictOffset;

  return t;
}

}  // namespace dynprof
