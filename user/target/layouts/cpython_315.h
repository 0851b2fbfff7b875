// CPython 3.15, by offsetof on 3.15.2: what differs from 3.14.
#pragma once

#include "user/target/layouts/cpython_314.h"

namespace dynprof {

constexpr PythonLayout cpython_315() {
  PythonLayout t = cpython_314();
  t.python = python_version(3, 15);

  t.runtime_interpreters_head = 936;
  t.interpreter_size = 226232;
  t.interpreter_next = 7264;
  t.interpreter_threads_head = 7336;
  t.interpreter_id = 7272;
  t.interpreter_modules = 7592;

  t.bpf.tstate_thread_id = 176;
  t.tstate_native_thread_id = 184;
  t.tstate_dict = 152;
  t.tstate_local_key = 328;

  t.type_cached_keys = 888;

  return t;
}

}  // namespace dynprof
