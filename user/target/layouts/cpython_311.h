// CPython 3.11, by offsetof on 3.11.7.
#pragma once

#include "user/target/python_layout.h"

namespace dynprof {

constexpr PythonLayout cpython_311() {
  PythonLayout t;
  t.python = python_version(3, 11);

  t.runtime_interpreters_head = 40;
  t.interpreter_size = 107752;
  t.interpreter_next = 0;
  t.interpreter_threads_head = 16;
  t.interpreter_id = 48;
  t.interpreter_modules = 888;

  t.bpf.tstate_thread_id = 152;
  t.bpf.tstate_interp = 16;
  t.bpf.tstate_frame = 56;  // cframe
  t.bpf.cframe_frame = 8;
  t.bpf.cframe_previous = 16;
  t.tstate_native_thread_id = 160;
  t.tstate_dict = 128;

  t.bpf.frame_base = 0;
  t.bpf.frame_code = 32;
  t.bpf.frame_previous = 48;
  t.bpf.frame_instr = 56;
  t.bpf.frame_owner = 69;
  t.bpf.frame_localsplus = 72;
  t.bpf.instr_is_index = 0;
  t.bpf.shim_owner = kNoShimOwner;
  t.bpf.code_tag_mask = 0;
  t.bpf.frame_is_entry = 68;

  t.bpf.code_base = 72;
  t.bpf.code_firstlineno = 0;
  t.bpf.code_filename = 40;
  t.bpf.code_name = 48;
  t.bpf.code_qualname = 56;
  t.bpf.code_linetable = 64;
  t.bpf.code_version = DP_NO_OFFSET;
  t.bpf.code_instructions = 184;
  t.code_consts = 24;
  t.code_flags = 48;
  t.code_argcount = 56;
  t.code_kwonlyargcount = 64;
  t.code_localsplusnames = 96;
  t.code_localspluskinds = 104;

  t.bpf.long_tag_shift = 0;
  t.type_cached_keys = 872;
  t.unicode_ascii_data = 48;
  t.unicode_compact_data = 72;
  t.instance = PythonLayout::Instance::kValuesBefore;

  return t;
}

}  // namespace dynprof
