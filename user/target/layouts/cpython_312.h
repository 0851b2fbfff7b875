// CPython 3.12, by offsetof on 3.12.1: what differs from 3.11.
#pragma once

#include "user/target/layouts/cpython_311.h"

namespace dynprof {

constexpr PythonLayout cpython_312() {
  PythonLayout t = cpython_311();
  t.python = python_version(3, 12);

  t.interpreter_size = 194968;
  t.interpreter_threads_head = 72;
  t.interpreter_id = 8;
  t.interpreter_modules = 944;

  t.bpf.tstate_thread_id = 136;
  t.bpf.cframe_frame = 0;
  t.bpf.cframe_previous = 8;
  t.tstate_native_thread_id = 144;
  t.tstate_dict = 112;

  t.bpf.frame_code = 0;
  t.bpf.frame_previous = 8;
  t.bpf.frame_owner = 70;
  t.bpf.shim_owner = 3;  // FRAME_OWNED_BY_CSTACK
  t.bpf.frame_is_entry = DP_NO_OFFSET;

  t.bpf.code_base = 64;
  t.bpf.code_firstlineno = 4;
  t.bpf.code_filename = 48;
  t.bpf.code_name = 56;
  t.bpf.code_qualname = 64;
  t.bpf.code_linetable = 72;
  t.bpf.code_version = 28;
  t.bpf.code_instructions = 192;
  t.code_argcount = 52;
  t.code_kwonlyargcount = 60;

  t.bpf.long_tag_shift = 3;
  t.type_cached_keys = 880;
  t.unicode_ascii_data = 40;
  t.unicode_compact_data = 56;
  t.instance = PythonLayout::Instance::kTaggedBefore;

  return t;
}

}  // namespace dynprof
