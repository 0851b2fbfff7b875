#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/unit/target_fake_memory.h"
#include "user/target/interpreter_walk.h"
#include "user/target/python_layouts.h"
#include "user/target/runtime_scan.h"

namespace dynprof {
namespace {

using testing::FakeMemory;

// _Py_DebugOffsets of CPython 3.13.0 on x86-64, as its own header lays it out.
std::vector<std::uint64_t> offsets_of_313() {
  return {0,      0x030d00f0, 0,    459944, 632 - 40, 632,  // runtime
          383552, 7272,       7264, 7344,   7424,     7656, 7640, 7648, 8,   16,
          0,      24,         32,                                                  // interpreter
          288,    0,          8,    16,     72,       152,  160,  240,  32,        // thread
          80,     8,          0,    56,     72,       70,                          // frame
          208,    112,        120,  128,    136,      68,   52,   96,   104, 200,  // code
          16,     8,                                                               // object
          416,    24,         88,   168,                                           // type
          32,     24,         16,                                                  // tuple
          40,     24,         16,                                                  // list
          48,     32,         40,                                                  // dict
          24,     16,                                                              // float
          32,     16,         24,                                                  // int
          40,     16,         32,                                                  // bytes
          64,     32,         16,   40,                                            // str
          248,    88};                                                             // gc
}

std::vector<std::byte> as_runtime(const std::vector<std::uint64_t>& words) {
  std::vector<std::byte> bytes(words.size() * 8);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  std::memcpy(bytes.data(), kDebugCookie.data(), kDebugCookie.size());
  return bytes;
}

TEST(TargetLayout, DebugOffsetsAgreeWithTheMeasuredTable) {
  auto told = parse_debug_offsets(as_runtime(offsets_of_313()));
  ASSERT_TRUE(told) << told.error().what;
  const PythonLayout& t = told->layout;
  const PythonLayout& measured = *measured_layout(python_version(3, 13));
  EXPECT_EQ(told->hex_version, 0x030d00f0u);
  EXPECT_EQ(std::memcmp(&t.bpf, &measured.bpf, sizeof t.bpf), 0);
  EXPECT_EQ(t.runtime_interpreters_head, measured.runtime_interpreters_head);
  EXPECT_EQ(t.interpreter_next, measured.interpreter_next);
  EXPECT_EQ(t.interpreter_id, measured.interpreter_id);
  EXPECT_EQ(t.interpreter_threads_head, measured.interpreter_threads_head);
  EXPECT_EQ(t.interpreter_modules, measured.interpreter_modules);
  EXPECT_EQ(t.tstate_native_thread_id, measured.tstate_native_thread_id);
  EXPECT_EQ(t.code_localsplusnames, measured.code_localsplusnames);
  EXPECT_EQ(t.code_consts, measured.code_consts);
  EXPECT_EQ(t.function_code, measured.function_code);
  EXPECT_EQ(t.type_flags, measured.type_flags);
  EXPECT_EQ(t.type_dict, measured.type_dict);
  EXPECT_EQ(t.dict_keys, measured.dict_keys);
  EXPECT_EQ(t.unicode_ascii_data, measured.unicode_ascii_data);
  EXPECT_EQ(t.unicode_compact_data, measured.unicode_compact_data);
}

TEST(TargetLayout, AFreeThreadedHeadMovesWhatFollowsIt) {
  auto words = offsets_of_313();
  words[2] = 1;
  std::size_t object = 3 + 3 + 13 + 9 + 6 + 10;
  words[object] = 32;
  words[object + 1] = 24;
  auto told = parse_debug_offsets(as_runtime(words));
  ASSERT_TRUE(told) << told.error().what;
  EXPECT_TRUE(told->layout.free_threaded);
  EXPECT_EQ(told->layout.object_type, 24u);
  EXPECT_EQ(told->layout.function_code, 64u);
  EXPECT_EQ(told->layout.type_cached_keys, 0u);  // instances are left alone
}

// CPython 3.14 inserted fields: the same numbers, with those in their places.
TEST(TargetLayout, DebugOffsetsOf314HaveMoreFields) {
  auto words = offsets_of_313();
  words[1] = 0x030e00f0;
  auto insert = [&](std::size_t at, std::initializer_list<std::uint64_t> more) {
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(at), more);
  };
  // From the back: set, co_tlbc, stackpointer and tlbc_index, the generations, threads_main.
  std::size_t interpreter = 3 + 3;
  std::size_t thread = interpreter + 13;
  std::size_t frame = thread + 9;
  std::size_t code = frame + 6;
  std::size_t list_end = code + 10 + 2 + 4 + 3 + 3;
  insert(list_end, {200, 24, 40, 32});
  insert(code + 10, {0});
  insert(frame + 6, {64, 0});
  insert(thread, {0, 0});
  insert(interpreter + 4, {7352});
  words[3 + 3 + 16 + 9 + 4] = 80;  // localsplus moved
  words[3 + 3 + 16 + 9] = 88;
  words[3 + 3 + 16 + 9 + 5] = 74;  // and the owner
  auto told = parse_debug_offsets(as_runtime(words));
  ASSERT_TRUE(told) << told.error().what;
  const PythonLayout& t = told->layout;
  const PythonLayout& before = *measured_layout(python_version(3, 13));
  EXPECT_EQ(t.interpreter_modules, before.interpreter_modules);
  EXPECT_EQ(t.bpf.tstate_thread_id, before.bpf.tstate_thread_id);
  EXPECT_EQ(t.bpf.frame_localsplus, 80);
  EXPECT_EQ(t.bpf.frame_owner, 74);
  EXPECT_EQ(t.bpf.shim_owner, 3);
  EXPECT_EQ(t.bpf.code_tag_mask, 1);
  EXPECT_EQ(t.bpf.code_linetable, before.bpf.code_linetable);
  EXPECT_EQ(t.bpf.code_version, before.bpf.code_version);
  EXPECT_EQ(t.bpf.code_instructions, before.bpf.code_instructions);
  EXPECT_EQ(t.dict_keys, before.dict_keys);
  EXPECT_EQ(t.unicode_ascii_data, before.unicode_ascii_data);
  EXPECT_EQ(t.unicode_kind_shift, 2u);
  words[2] = 1;  // free-threaded: refused, with a reason
  auto refused = parse_debug_offsets(as_runtime(words));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("free-threaded"), std::string::npos);
}

// CPython 3.15.2 inserted more, and tells two sizes of its own.
TEST(TargetLayout, DebugOffsetsOf315HaveMoreFields) {
  const std::vector<std::uint64_t> words = {
      0,      0x030f02f0, 0,    0x60000, 632,  936,  // runtime
      226232, 7272,       7264, 7336,    7344, 7400, 7592, 7576, 7584, 7800, 8,
      16,     24,         32,   40,      48,   400,  0,    8,    16,   72,   80,
      88,     96,         176,  184,     240,  32,   40,   44,   120,  128,
      0,                                                                         // err_stackitem
      88,     8,          0,    56,      80,   74,   64,   0,                    // frame
      216,    112,        120,  128,     136,  68,   52,   96,   104,  208,  0,  // code
      16,     8,                                                                 // object
      416,    24,         88,   168,     32,   288,                              // type
      928,    888,                                                               // heap type
      40,     32,         16,                                                    // tuple
      40,     24,         16,                                                    // list
      200,    24,         40,   32,                                              // set
      48,     32,         40,                                                    // dict
      24,     16,                                                                // float
      32,     16,         24,                                                    // int
      40,     16,         32,                                                    // bytes
      64,     32,         16,   40,      56,                                     // str
      176,    100,        104,  8,       112};                                   // gc
  auto found = parse_debug_offsets(as_runtime(words));
  ASSERT_TRUE(found) << found.error().what;
  const PythonLayout& t = found->layout;
  const PythonLayout& measured = *measured_layout(python_version(3, 15));
  EXPECT_EQ(std::memcmp(&t.bpf, &measured.bpf, sizeof t.bpf), 0);
  EXPECT_EQ(t.runtime_interpreters_head, measured.runtime_interpreters_head);
  EXPECT_EQ(t.interpreter_threads_head, measured.interpreter_threads_head);
  EXPECT_EQ(t.interpreter_modules, measured.interpreter_modules);
  EXPECT_EQ(t.tstate_native_thread_id, measured.tstate_native_thread_id);
  EXPECT_EQ(t.type_cached_keys, measured.type_cached_keys);
  EXPECT_EQ(t.type_dictoffset, measured.type_dictoffset);
  EXPECT_EQ(t.tuple_items, measured.tuple_items);
  EXPECT_EQ(t.set_table, measured.set_table);
  EXPECT_EQ(t.unicode_compact_data, measured.unicode_compact_data);
}

TEST(TargetLayout, DebugOffsetsThatMakeNoSenseAreRefused) {
  auto bytes = as_runtime(offsets_of_313());
  for (std::size_t size = 0; size + 24 < bytes.size(); size += 8) {
    EXPECT_FALSE(parse_debug_offsets(std::span(bytes).first(size))) << size;
  }
  bytes[0] = std::byte{'y'};
  EXPECT_FALSE(parse_debug_offsets(bytes));
  for (std::uint64_t version : {0ULL, 0x030c00f0ULL, 0x040000f0ULL, 0x031000f0ULL, ~0ULL}) {
    auto words = offsets_of_313();
    words[1] = version;
    EXPECT_FALSE(parse_debug_offsets(as_runtime(words))) << version;
  }
}

// Each number in turn made absurd: refused, or one we do not use; never an offset out of bounds.
TEST(TargetLayout, EachFieldIsBounded) {
  std::mt19937_64 random(3);
  auto good = offsets_of_313();
  for (std::size_t i = 3; i < good.size(); ++i) {
    for (std::uint64_t value : std::initializer_list<std::uint64_t>{
             0, 1, 0xffff, 0x10000, 1ULL << 31, 1ULL << 32, ~0ULL, random()}) {
      auto words = good;
      words[i] = value;
      auto told = parse_debug_offsets(as_runtime(words));
      if (!told) continue;
      const dp_python_layout& b = told->layout.bpf;
      EXPECT_LE(b.frame_code + 8, DP_FRAME_READ_BYTES);
      EXPECT_LE(b.frame_previous + 8, DP_FRAME_READ_BYTES);
      EXPECT_LE(b.frame_instr + 8, DP_FRAME_READ_BYTES);
      EXPECT_LE(b.code_linetable + 8, DP_CODE_READ_BYTES);
      EXPECT_LE(b.code_filename + 8, DP_CODE_READ_BYTES);
      EXPECT_TRUE(b.code_version == DP_NO_OFFSET || b.code_version + 4 <= DP_CODE_READ_BYTES);
      EXPECT_LE(told->layout.interpreter_modules, 1u << 24);
      EXPECT_LE(told->layout.unicode_ascii_data, 4096u);
      EXPECT_LE(told->layout.tuple_items, 4096u);
    }
  }
}

TEST(TargetLayout, AFieldMustEndInsideItsStruct) {
  constexpr std::size_t kModules = 3 + 3 + 5;  // the interpreter's imports_modules
  constexpr std::size_t kSize = 3 + 3;
  auto words = offsets_of_313();
  ASSERT_EQ(words[kModules], 7656u);
  words[kModules] = words[kSize] - 8;
  EXPECT_TRUE(parse_debug_offsets(as_runtime(words)));
  words[kModules] = words[kSize];
  EXPECT_FALSE(parse_debug_offsets(as_runtime(words)));
  words[kModules] = 7657;  // not aligned
  EXPECT_FALSE(parse_debug_offsets(as_runtime(words)));
}

TEST(TargetLayout, EveryMeasuredTableIsValid) {
  for (int minor = 10; minor <= 15; ++minor) {
    const PythonLayout* layout = measured_layout(python_version(3, minor));
    ASSERT_TRUE(layout);
    EXPECT_TRUE(validate_layout(*layout));
  }
  for (int minor : {8, 9, 16}) EXPECT_FALSE(measured_layout(python_version(3, minor)));
  PythonLayout wide = *measured_layout(python_version(3, 12));
  wide.bpf.frame_instr = 80;
  EXPECT_FALSE(validate_layout(wide));
  PythonLayout missing = *measured_layout(python_version(3, 12));
  missing.interpreter_modules = 0;
  EXPECT_FALSE(validate_layout(missing));
}

// A 3.11 process: interpreters and threads as lists, thread control blocks beside them.
class TargetWalk : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRuntime = 0x100000;
  static constexpr std::uint64_t kMain = 0x200000;
  static constexpr std::uint64_t kState = 0x300000;    // + n * 0x1000
  static constexpr std::uint64_t kControl = 0x400000;  // + n * 0x10000

  TargetWalk() {
    memory_.allocate(kRuntime, 4096);
    memory_.allocate(kMain, 4096);
    memory_.write(kRuntime + 40, kMain);
    memory_.write(kRuntime + 48, kMain);
    memory_.write<std::uint64_t>(kRuntime + 56, 1);
  }
  std::uint64_t control(int n) { return kControl + static_cast<std::uint64_t>(n) * 0x10000; }
  std::uint64_t state(int n) { return kState + static_cast<std::uint64_t>(n) * 0x1000; }
  void add_thread(int n) {
    memory_.allocate(state(n), 512);
    memory_.write(state(n) + 8, head_);
    memory_.write(state(n) + 16, kMain);
    memory_.write(state(n) + 152, control(n));
    memory_.allocate(control(n) - 4096, 8192);
    memory_.write(control(n), control(n));
    memory_.write(control(n) + 16, control(n));
    head_ = state(n);
    memory_.write(kMain + 16, head_);
  }
  InterpreterWalk walk() { return walk_interpreters(objects_, kRuntime); }

  FakeMemory memory_;
  RemoteObjects objects_{memory_, *measured_layout(python_version(3, 11))};
  std::uint64_t head_ = 0;
};

TEST_F(TargetWalk, FindsThreads) {
  for (int n = 0; n < 3; ++n) add_thread(n);
  auto found = walk();
  EXPECT_EQ(found.problem, "");
  ASSERT_TRUE(found.main());
  EXPECT_EQ(found.main()->threads, 3u);
}

TEST_F(TargetWalk, RejectsListsOfNoInterpreter) {
  add_thread(0);
  memory_.write<std::uint64_t>(state(0) + 16, kMain + 8);
  EXPECT_NE(walk().problem, "");
  memory_.write<std::uint64_t>(state(0) + 16, kMain);
  EXPECT_EQ(walk().problem, "");
  memory_.write<std::uint64_t>(kRuntime + 40, 12345);
  EXPECT_NE(walk().problem, "");
}

TEST_F(TargetWalk, CyclicListsEnd) {
  add_thread(0);
  memory_.write(state(0) + 8, state(0));
  memory_.write(kMain, kMain);
  EXPECT_LE(walk().threads.size(), 65'536u);
}

TEST_F(TargetWalk, PrefersTheThreadSpecificKey) {
  for (int n = 0; n < 4; ++n) {
    add_thread(n);
    memory_.write(control(n) + 808, state(n));
    // The thread-local variable too: but it is NULL in a thread that waits for the GIL.
    memory_.write(control(n) - 8, state(n));
  }
  auto found = walk();
  auto offset = find_tstate_offset(memory_, found.threads, kMain);
  ASSERT_TRUE(offset);
  EXPECT_EQ(offset->offset, 808);
  EXPECT_EQ(offset->agree, 4u);
}

TEST_F(TargetWalk, AKeyFewHaveDoesNotWin) {
  for (int n = 0; n < 4; ++n) {
    add_thread(n);
    memory_.write(control(n) - 8, state(n));
    if (n == 0) memory_.write(control(n) + 792, state(n));
  }
  auto offset = find_tstate_offset(memory_, walk().threads, kMain);
  ASSERT_TRUE(offset);
  EXPECT_EQ(offset->offset, -8);
}

// CPython 3.15: no key, but two thread-local variables; one is NULL in a thread that waits for the GIL.
TEST_F(TargetWalk, AThreadWithoutTheGilShowsWhichThreadLocalIsRight) {
  for (int n = 0; n < 2; ++n) {
    add_thread(n);
    memory_.write(control(n) - 40, state(n));
    if (n == 0) memory_.write(control(n) - 32, state(n));
  }
  auto offset = find_tstate_offset(memory_, walk().threads, kMain);
  ASSERT_TRUE(offset);
  EXPECT_EQ(offset->offset, -40);
  EXPECT_EQ(offset->other, 0);
}

TEST_F(TargetWalk, TwoThreadLocalsThatAgreeAreBothKept) {
  add_thread(0);
  for (int at : {-2000, -40, -32})
    memory_.write(control(0) + static_cast<std::uint64_t>(at), state(0));
  auto offset = find_tstate_offset(memory_, walk().threads, kMain);
  ASSERT_TRUE(offset);
  EXPECT_EQ(offset->offset, -40);
  EXPECT_EQ(offset->other, -32);
}

TEST_F(TargetWalk, NothingInCommonIsNoOffset) {
  for (int n = 0; n < 4; ++n) {
    add_thread(n);
    memory_.write(control(n) + 100 * 8 + static_cast<std::uint64_t>(n) * 8, state(n));
  }
  EXPECT_FALSE(find_tstate_offset(memory_, walk().threads, kMain));
  EXPECT_FALSE(find_tstate_offset(memory_, {}, kMain));
}

TEST_F(TargetWalk, IsFoundWithoutSymbols) {
  add_thread(0);
  AddressRange data[] = {{kRuntime, kRuntime + 4096}};
  const PythonLayout& layout = *measured_layout(python_version(3, 11));
  EXPECT_EQ(scan_for_interpreter(memory_, data, layout), kRuntime);
  memory_.write<std::uint64_t>(control(0), 0);  // its thread is none
  EXPECT_FALSE(scan_for_interpreter(memory_, data, layout));
}

TEST_F(TargetWalk, TheCookieIsFound) {
  auto bytes = as_runtime(offsets_of_313());
  bytes.resize(kDebugOffsetsBytes);
  memory_.allocate(0x800000, 700'000);
  memory_.put(0x800000 + 700'000, bytes);
  AddressRange data[] = {{0x700000, 0x700100},
                         {0x800000, 0x800000 + 700'000},
                         {0x800000 + 700'000, 0x800000 + 700'000 + kDebugOffsetsBytes}};
  const RuntimeScan scanned = scan_for_cookie(memory_, data);
  EXPECT_EQ(scanned.place, 0x800000u + 700'000u);
  EXPECT_FALSE(scanned.complete);  // the first range is not there
  const RuntimeScan none = scan_for_cookie(memory_, std::span(data).subspan(1, 1));
  EXPECT_FALSE(none.place);
  EXPECT_TRUE(none.complete);
}

}  // namespace
}  // namespace dynprof
