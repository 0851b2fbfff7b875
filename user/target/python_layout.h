// Where one CPython version keeps what we read, as data. The values of each version are in
// user/target/layouts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bpf/targets.h"
#include "symbolizer/python/python_version.h"

namespace dynprof {

inline constexpr std::uint8_t kNoShimOwner = 0xff;  // dp_python_layout.shim_owner

struct PythonLayout {
  std::uint16_t python = 0;  // python_version()
  bool free_threaded = false;
  dp_python_layout bpf{};  // what the walker in the kernel needs

  // All in bytes from the start of the named struct.
  std::uint32_t object_type = 8;   // PyObject.ob_type
  std::uint32_t object_size = 16;  // sizeof(PyObject): where fields and ob_size begin

  std::uint32_t runtime_interpreters_head = 0;
  std::uint32_t interpreter_size = 0;  // bounds the search for a moved field
  std::uint32_t interpreter_next = 0;
  std::uint32_t interpreter_threads_head = 0;
  std::uint32_t interpreter_id = 0;
  std::uint32_t interpreter_modules = 0;  // the dict sys.modules
  std::uint32_t interpreter_gil = 0;      // ceval.gil, a pointer; 0: not known, before 3.13
  std::uint32_t tstate_next = 8;
  std::uint32_t tstate_native_thread_id = 0;  // 0: none (3.10)
  std::uint32_t tstate_dict = 0;
  // PyThreadState.threading_local_key (3.13+); 0: a threading.local keeps its dict in tstate_dict.
  std::uint32_t tstate_local_key = 0;

  std::uint32_t code_code = 0;  // 3.10
  std::uint32_t code_consts = 0;
  std::uint32_t code_flags = 0;
  std::uint32_t code_argcount = 0;
  std::uint32_t code_kwonlyargcount = 0;
  std::uint32_t code_localsplusnames = 0;  // 3.11+
  std::uint32_t code_localspluskinds = 0;  // 3.11+
  std::uint32_t code_varnames = 0;         // 3.10
  std::uint32_t code_cellvars = 0;         // 3.10
  std::uint32_t code_freevars = 0;         // 3.10

  std::uint32_t function_code = 48;
  std::uint32_t function_closure = 72;
  std::uint32_t function_dict = 88;
  std::uint32_t cell_value = 16;
  std::uint32_t method_function = 16;  // also classmethod's and staticmethod's callable
  std::uint32_t module_dict = 16;

  std::uint32_t type_name = 24;
  std::uint32_t type_basicsize = 32;
  std::uint32_t type_itemsize = 40;
  std::uint32_t type_flags = 168;
  std::uint32_t type_base = 256;
  std::uint32_t type_dict = 264;
  std::uint32_t type_dictoffset = 288;
  std::uint32_t type_cached_keys = 0;        // PyHeapTypeObject.ht_cached_keys, 0: not known
  std::uint32_t member_descriptor_def = 40;  // PyMemberDescrObject.d_member
  std::uint32_t member_def_type = 8;         // PyMemberDef.type, an int
  std::uint32_t member_def_offset = 16;      // PyMemberDef.offset

  std::uint32_t tuple_items = 24;
  std::uint32_t bytes_data = 32;
  std::uint32_t long_digits = 24;  // ob_size or lv_tag lies at object_size
  std::uint32_t unicode_length = 16;
  std::uint32_t unicode_state = 32;
  std::uint32_t unicode_ascii_data = 0;  // sizeof(PyASCIIObject)
  // sizeof(PyCompactUnicodeObject), where PyUnicodeObject.data lies too.
  std::uint32_t unicode_compact_data = 0;
  std::uint32_t unicode_kind_shift = 2;  // bits of `interned` below kind:3 compact:1 ascii:1

  std::uint32_t float_value = 16;
  std::uint32_t list_items = 24;  // PyListObject.ob_item, a pointer
  // PySetObject; frozenset too. Entries of 16 bytes: key, hash (-1: deleted).
  std::uint32_t set_used = 24;
  std::uint32_t set_mask = 32;
  std::uint32_t set_table = 40;
  // dequeobject of _collections: leftblock, rightblock, leftindex, rightindex, state (+1 at each
  // change), maxlen, 8 bytes each. A block: the block to its left, 64 items, the block to its right.
  std::uint32_t deque_left_block = 24;

  std::uint32_t dict_used = 16;
  std::uint32_t dict_keys = 32;
  std::uint32_t dict_values = 40;
  // 3.10: dk_size (count) at 8, entries of 24 bytes. 3.11+: log2 sizes and a kind byte.
  bool dict_keys_log2 = true;
  std::uint32_t dict_keys_nentries = 24;
  std::uint32_t dict_keys_indices = 32;
  std::uint32_t dict_values_header = 0;  // bytes before values[0]

  // How an instance without __slots__ keeps its attributes (Py_TPFLAGS_MANAGED_DICT).
  enum class Instance : std::uint8_t {
    kDictOffset,    // 3.10: a pointer to a dict at tp_dictoffset
    kValuesBefore,  // 3.11: values at -32, dict at -24
    kTaggedBefore,  // 3.12: at -24 values - 1 (low bit set) or dict
    kInline,        // 3.13+: values inside the object, dict at -24
  };
  Instance instance = Instance::kDictOffset;
  std::int32_t managed_dict = -24;    // from the object; 3.11+
  std::int32_t managed_values = -32;  // 3.11

  constexpr int major() const { return python_major(python); }
  constexpr int minor() const { return python_minor(python); }
};

}  // namespace dynprof
