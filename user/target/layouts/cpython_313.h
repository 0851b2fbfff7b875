// CPython 3.13, by offsetof on 3.13.0: what differs from 3.12.
#pragma once

#include "user/target/layouts/cpython_312.h"

namespace dynprof {

constexpr PythonLayout cpython_313() {
  PythonLayout t = cpython_312();
  t.python = python_version(3, 13);

  t.runtime_interpreters_head = 632;
  t.interpreter_size = 383552;
  t.interpreter_next = 7264;
  t.interpreter_threads_head = 7344;
  t.interpreter_id = 7272;
  t.interpreter_modules = 7656;

  t.bpf.tstate_thread_id = 152;
  t.bpf.tstate_frame = 72;  // current_frame
  t.bpf.cframe_frame = DP_NO_OFFSET;
  t.bpf.cframe_previous = DP_NO_OFFSET;
  t.tstate_native_thread_id = 160;
  t.tstate_dict = 128;
  t.tstate_local_key = 288;

  t.bpf.code_instructions = 200;

  t.dict_values_header = 8;
  t.instance = PythonLayout::Instance::kInline;

  return t;
}

}  // namespace dynprof
