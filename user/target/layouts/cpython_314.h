// CPython 3.14, by offsetof on 3.14.10: what differs from 3.13. Locals, and the code object of a frame, are
// tagged references (_PyStackRef).
#pragma once

#include "user/target/layouts/cpython_313.h"

namespace dynprof {

constexpr PythonLayout cpython_314() {
  PythonLayout t = cpython_313();
  t.python = python_version(3, 14);

  t.runtime_interpreters_head = 808;
  t.interpreter_size = 225864;
  t.interpreter_next = 7272;
  t.interpreter_threads_head = 7344;
  t.interpreter_id = 7280;
  t.interpreter_modules = 7688;

  t.bpf.frame_owner = 74;
  t.bpf.frame_localsplus = 80;
  t.bpf.shim_owner = 3;     // FRAME_OWNED_BY_INTERPRETER; 4 is FRAME_OWNED_BY_CSTACK
  t.bpf.code_tag_mask = 1;  // Py_TAG_REFCNT

  t.bpf.code_instructions = 208;

  t.tuple_items = 32;

  return t;
}

}  // namespace dynprof
