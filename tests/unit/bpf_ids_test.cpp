// How the BPF programs look up which compile a thread is in, in memory of every version of CPython: by the locals
// of torch's marker frames and by torch's thread-locals. And that it ends whatever these hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/unit/bpf_native_space.h"
#include "tests/unit/bpf_walked_thread.h"

namespace dynprof {
namespace {

using namespace dynprof::testing;

constexpr std::uint64_t kHeap = 0x2000000, kHeapBytes = 0x8000;
// Types are known by their addresses alone.
constexpr std::uint64_t kInt = 0x3000000, kCell = 0x3000100, kNone = 0x3000200,
                        kCompileId = 0x3000300, kContext = 0x3000400, kList = 0x3000500,
                        kOther = 0x3000600;
constexpr std::uint16_t kSlot = 2, kCodeSlot = 4;
// Offsets in a CompileId and in a CompileContext, as __slots__ place them.
constexpr std::int16_t kFrameId = 16, kFrameCompileId = 24, kAutogradId = 32;
constexpr std::int16_t kContextId = 16, kContextAttempt = 24;

dp_path path(std::int16_t offset) { return {{offset, 0, 0}, 1, 0}; }

class BpfIds : public ::testing::TestWithParam<int> {
 protected:
  BpfIds() : python(GetParam()), bpf(python.layout.bpf) {
    memory.allocate(kHeap, kHeapBytes);
    python.make(6);
    dp_process& process = python.process;
    process.flags |= DP_PROCESS_TORCH;
    process.long_type = kInt;
    process.cell_type = kCell;
    process.none = kNone;
    process.torch.compile_id_type = kCompileId;
    process.torch.compile_context_type = kContext;
    process.torch.list_type = kList;
    process.torch.id_autograd = path(kAutogradId);
    process.torch.id_frame = path(kFrameId);
    process.torch.id_compile = path(kFrameCompileId);
    process.torch.context_id = path(kContextId);
    process.torch.context_attempt = path(kContextAttempt);
    thread.process = &process;
    thread.fsbase = kThread;
    thread.read = read_fake;
    thread.context = &memory;
  }

  std::uint64_t object(std::uint64_t type, std::uint64_t word = 0) {
    const std::uint64_t at = next_;
    next_ += 64;
    memory.write(at + 8, type);
    memory.write(at + 16, word);
    return at;
  }
  std::uint64_t integer(std::uint32_t value) {
    const std::uint64_t digits = value ? 1 : 0;
    const bool tagged = bpf.long_tag_shift != 0;
    const std::uint64_t at = object(kInt, tagged ? digits << 3 | (value ? 0 : 1) : digits);
    memory.write(at + 24, value);
    return at;
  }
  std::uint64_t compile_id(std::uint32_t frame, std::uint32_t compile,
                           std::uint64_t autograd = kNone) {
    const std::uint64_t at = object(kCompileId);
    memory.write(at + kFrameId, integer(frame));
    memory.write(at + kFrameCompileId, integer(compile));
    memory.write(at + kAutogradId, autograd);
    return at;
  }
  std::uint64_t context(std::uint64_t id, std::uint32_t attempt) {
    const std::uint64_t at = object(kContext);
    memory.write(at + kContextId, id);
    memory.write(at + kContextAttempt, integer(attempt));
    return at;
  }
  // From 3.14 on references have tags.
  std::uint64_t reference(std::uint64_t object) const { return object | bpf.code_tag_mask; }
  void set_local(std::size_t frame, std::uint16_t slot, std::uint64_t object) {
    memory.write(python.frame_at(frame) + bpf.frame_localsplus + 8ULL * slot, reference(object));
  }
  // The code of this frame is a marker; its local in kSlot is this object.
  void mark(std::size_t frame, dp_marker_kind kind, std::uint64_t object) {
    known.push_back({{python.code_at(frame), DP_HOST_ID, 0},
                     {python.identity(frame), kSlot, DP_NO_OFFSET, static_cast<__u8>(kind), {}}});
    set_local(frame, kSlot, object);
  }
  // An entry of a dict: what user space has looked up of it.
  dp_dict_entry entry(std::uint64_t value) {
    const std::uint64_t dict = object(kOther), keys = object(kOther), at = object(kOther);
    memory.write(dict + 32, keys);
    memory.write(at, std::uint64_t{0x1234});
    memory.write(at + 8, value);
    return {dict, keys, at, 0x1234};
  }
  // A list of str objects with these hashes.
  std::uint64_t list(const std::vector<std::uint64_t>& hashes) {
    const std::uint64_t items = next_;
    next_ += 8 * hashes.size() + 64;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      const std::uint64_t text = object(kOther);
      memory.write(text + 24, hashes[i]);
      memory.write(items + 8 * i, text);
    }
    const std::uint64_t at = object(kList, hashes.size());
    memory.write(at + 24, items);
    return at;
  }
  void set_torch(std::uint64_t context, std::uint64_t phases) {
    torch.context = context ? entry(context) : dp_dict_entry{};
    torch.phases = phases ? entry(phases) : dp_dict_entry{};
    torch.pid = DP_HOST_ID;
    thread.torch = &torch;
  }
  const SampleView& take() {
    thread.known = known.data();
    thread.known_count = static_cast<__u32>(known.size());
    return sampled.take(thread);
  }
  dp_marker marker() {
    const SampleView& view = take();
    EXPECT_EQ(view.markers.size(), 1u);
    return view.markers.empty() ? dp_marker{} : view.markers[0];
  }
  std::uint32_t marker_status() { return marker().status; }

  WalkedThread python;
  FakeMemory& memory = python.memory;
  const dp_python_layout& bpf;
  std::vector<dp_host_known_code> known;
  dp_torch_thread torch = {};
  dp_host_thread thread = {};
  SampledThread sampled;
  std::uint64_t next_ = kHeap;
};

TEST_P(BpfIds, OfAForwardCompile) {
  mark(1, DP_MARKER_COMPILE, compile_id(3, 0));
  known[0].code.code_slot = kCodeSlot;
  set_local(1, kCodeSlot, python.code_at(4));
  const dp_marker found = marker();
  EXPECT_EQ(found.status, DP_MARKER_OK);
  EXPECT_EQ(found.kind, DP_MARKER_COMPILE);
  EXPECT_EQ(found.frame_index, 1);
  EXPECT_EQ(found.instance, python.frame_at(1));
  EXPECT_EQ(found.frame_id, 3);
  EXPECT_EQ(found.compile_id, 0);
  EXPECT_EQ(found.autograd_id, DP_NO_VALUE);
  EXPECT_EQ(found.user_code, python.code_at(4));
  EXPECT_EQ(found.user_code_identity, python.identity(4));
}

TEST_P(BpfIds, OfACompiledAutogradGraph) {
  mark(0, DP_MARKER_COMPILE, compile_id(1, 2, integer(5)));
  EXPECT_EQ(marker().autograd_id, 5);
  // torch 2.6 has no such field.
  python.process.torch.id_autograd.steps = 0;
  EXPECT_EQ(marker().autograd_id, DP_NO_VALUE);
}

TEST_P(BpfIds, ThroughACell) {
  mark(1, DP_MARKER_COMPILE, object(kCell, compile_id(3, 1)));
  EXPECT_EQ(marker().frame_id, 3);
  EXPECT_EQ(marker().compile_id, 1);
  const std::uint64_t cell = object(kCell);
  memory.write(cell + 16, cell);  // of itself
  set_local(1, kSlot, cell);
  EXPECT_EQ(marker_status(), DP_MARKER_WRONG_TYPE);
}

TEST_P(BpfIds, OfAnAttempt) {
  mark(2, DP_MARKER_ATTEMPT, integer(7));
  EXPECT_EQ(marker().attempt, 7);
  set_local(2, kSlot, object(kOther));
  EXPECT_EQ(marker_status(), DP_MARKER_WRONG_TYPE);
}

TEST_P(BpfIds, OfALazyBackward) {
  mark(1, DP_MARKER_BACKWARD, context(compile_id(4, 2), 1));
  const dp_marker found = marker();
  EXPECT_EQ(found.status, DP_MARKER_OK);
  EXPECT_EQ(found.frame_id, 4);
  EXPECT_EQ(found.compile_id, 2);
  EXPECT_EQ(found.attempt, 1);
  set_local(1, kSlot, context(kNone, 0));
  EXPECT_EQ(marker_status(), DP_MARKER_UNSET);
  set_local(1, kSlot, kNone);
  EXPECT_EQ(marker_status(), DP_MARKER_UNSET);
}

TEST_P(BpfIds, OfAContextWithADictOfItsOwn) {
  dp_torch_layout& layout = python.process.torch;
  layout.context_id = {{kContextId, 8, 0}, 2, 0};  // ends in something else
  layout.context_id_dict = {{32, 40, 0}, 2, 0};
  layout.context_attempt_dict = {{32, 48, 0}, 2, 0};
  const std::uint64_t dict = object(kOther), of = object(kContext, object(kOther));
  memory.write(of + 32, dict);
  memory.write(dict + 40, compile_id(6, 1));
  memory.write(dict + 48, integer(2));
  mark(1, DP_MARKER_BACKWARD, of);
  const dp_marker found = marker();
  EXPECT_EQ(found.status, DP_MARKER_OK);
  EXPECT_EQ(found.frame_id, 6);
  EXPECT_EQ(found.attempt, 2);
}

TEST_P(BpfIds, WhatIsNoIdIsNotTakenForOne) {
  mark(1, DP_MARKER_COMPILE, object(kOther));
  EXPECT_EQ(marker_status(), DP_MARKER_WRONG_TYPE);
  set_local(1, kSlot, 0);
  EXPECT_EQ(marker_status(), DP_MARKER_UNSET);
  set_local(1, kSlot, 0x7ff000000000);  // not readable
  EXPECT_EQ(marker_status(), DP_MARKER_UNSET);

  const std::uint64_t id = compile_id(1, 1);
  set_local(1, kSlot, id);
  EXPECT_EQ(marker_status(), DP_MARKER_OK);
  memory.write(id + kFrameId, std::uint64_t{0x7ff000000000});
  EXPECT_EQ(marker_status(), DP_MARKER_FAULT_READ);
  memory.write(id + kFrameId, id);  // in a circle
  EXPECT_EQ(marker_status(), DP_MARKER_FAULT_READ);
  const std::uint64_t number = integer(1);
  memory.write(id + kFrameId, number);
  EXPECT_EQ(marker_status(), DP_MARKER_OK);
  const std::uint64_t two_digits = bpf.long_tag_shift ? 2 << 3 : 2;
  const std::uint64_t negative = bpf.long_tag_shift ? 1 << 3 | 2 : ~0ULL;
  for (std::uint64_t word : {two_digits, negative}) {
    memory.write(number + 16, word);
    EXPECT_EQ(marker_status(), DP_MARKER_FAULT_READ);
    EXPECT_EQ(marker().frame_id, DP_NO_VALUE);
  }
}

TEST_P(BpfIds, CodeThatIsAnotherOneIsNoMarker) {
  mark(1, DP_MARKER_COMPILE, compile_id(3, 0));
  known[0].code.identity++;  // its memory was used again
  const SampleView& view = take();
  EXPECT_TRUE(view.markers.empty());
  EXPECT_TRUE(view.sample.flags & DP_SAMPLE_NEW_CODE);
}

TEST_P(BpfIds, MarkersBeyondTheLimitAreCut) {
  python.make(DP_MAX_MARKERS + 4);
  for (std::size_t i = 0; i < DP_MAX_MARKERS + 4; ++i)
    mark(i, DP_MARKER_ATTEMPT, integer(static_cast<std::uint32_t>(i)));
  const SampleView& view = take();
  ASSERT_EQ(view.markers.size(), std::size_t{DP_MAX_MARKERS});
  EXPECT_TRUE(view.sample.flags & DP_SAMPLE_MARKERS_CUT);
  EXPECT_EQ(view.markers.back().attempt, DP_MAX_MARKERS - 1);
}

TEST_P(BpfIds, OfTorchsThreadLocals) {
  set_torch(context(compile_id(8, 3), 2), list({11, 22, 33}));
  const SampleView& view = take();
  ASSERT_TRUE(view.torch);
  EXPECT_EQ(view.torch->status, DP_TORCH_READ);
  EXPECT_EQ(view.torch->frame_id, 8);
  EXPECT_EQ(view.torch->compile_id, 3);
  EXPECT_EQ(view.torch->attempt, 2);
  EXPECT_EQ(view.torch->open_phases, 3u);
  std::vector<std::uint64_t> hashes;
  for (const dp_phase_name& phase : view.phases) hashes.push_back(phase.hash);
  EXPECT_EQ(hashes, (std::vector<std::uint64_t>{11, 22, 33}));
}

TEST_P(BpfIds, AThreadThatNeverCompiledHasNone) {
  set_torch(0, 0);
  const SampleView& view = take();
  ASSERT_TRUE(view.torch);
  EXPECT_EQ(view.torch->status, DP_TORCH_READ);
  EXPECT_EQ(view.torch->frame_id, DP_NO_VALUE);
  EXPECT_TRUE(view.phases.empty());
  torch.pid = DP_HOST_ID + 1;  // of a thread that had this number before
  EXPECT_FALSE(take().torch);
}

TEST_P(BpfIds, ThreadLocalsThatMovedAreStale) {
  set_torch(context(compile_id(8, 3), 2), list({11}));
  memory.write(torch.context.dict + 32, std::uint64_t{0x4444});  // resized
  EXPECT_EQ(take().torch->status, DP_TORCH_STALE);
  set_torch(context(compile_id(8, 3), 2), list({11}));
  memory.write(torch.phases.entry, std::uint64_t{0x4444});  // another key
  EXPECT_EQ(take().torch->status, DP_TORCH_STALE);
  EXPECT_TRUE(take().phases.empty());
}

TEST_P(BpfIds, ListsThatAreNone) {
  const std::uint64_t phases = list({11, 22});
  set_torch(0, phases);
  memory.write(phases + 16, ~0ULL);  // size: names beyond the limit are left out
  {
    const SampleView& view = take();
    EXPECT_EQ(view.phases.size(), std::size_t{DP_MAX_PHASES});
    EXPECT_EQ(view.torch->open_phases, ~0u);
    EXPECT_EQ(view.phases[0].hash, 11u);
  }
  memory.write(phases + 24, std::uint64_t{0x7ff000000000});  // items
  EXPECT_TRUE(take().phases.empty());
  memory.write(phases + 24, std::uint64_t{0});
  EXPECT_EQ(take().torch->status, DP_TORCH_FAULT);
  set_torch(0, object(kOther));
  EXPECT_EQ(take().torch->status, DP_TORCH_FAULT);
  set_torch(object(kOther), 0);
  EXPECT_EQ(take().torch->status, DP_TORCH_FAULT);
}

// Objects whose every word may be an address of another one, a type, a number or nothing.
TEST_P(BpfIds, AnyMemoryEnds) {
  std::mt19937_64 random(static_cast<unsigned>(GetParam()));
  const std::uint64_t words[] = {kInt, kCell, kNone, kCompileId, kContext, kList, 0, 1, 8, ~0ULL};
  for (std::size_t i = 0; i < 6; ++i) {
    mark(i, static_cast<dp_marker_kind>(1 + i % 3), 0);
    known.back().code.code_slot = kCodeSlot;
  }
  set_torch(object(kOther), object(kOther));
  int read = 0;
  for (int round = 0; round < 1000; ++round) {
    const auto address = [&] { return kHeap + random() % 64 * 64; };
    for (std::uint64_t at = kHeap; at < kHeap + 0x1000; at += 8)
      memory.write(at, random() % 2 ? address() : words[random() % std::size(words)]);
    for (std::uint64_t at = kHeap; at < kHeap + 0x1000; at += 64) {  // mostly good objects
      if (random() % 8) memory.write(at + 8, words[random() % 6]);
      if (random() % 2) memory.write(at + 16, std::uint64_t{bpf.long_tag_shift ? 8u : 1u});
      if (random() % 2) memory.write(at + 24, random() % 1000);
    }
    for (std::size_t i = 0; i < 6; ++i)
      for (std::uint16_t slot : {kSlot, kCodeSlot}) set_local(i, slot, address());
    for (dp_dict_entry* one : {&torch.context, &torch.phases}) {
      one->entry = address();
      one->dict = address();
      (void)memory.read(one->dict + 32, std::as_writable_bytes(std::span(&one->keys, 1)));
      (void)memory.read(one->entry, std::as_writable_bytes(std::span(&one->key, 1)));
    }
    dp_torch_layout& layout = python.process.torch;
    for (dp_path* one : {&layout.id_frame, &layout.id_compile, &layout.context_id,
                         &layout.context_attempt, &layout.context_id_dict})
      for (std::int16_t& offset : one->offset) offset = static_cast<std::int16_t>(random() % 64);
    layout.id_frame.steps = static_cast<__u8>(random() % 6);
    layout.context_id.steps = static_cast<__u8>(random());
    const SampleView& view = take();
    ASSERT_EQ(view.markers.size(), 6u);
    ASSERT_LT(dp_host_reads(), 500u);
    for (const dp_marker& marker : view.markers)
      if (marker.status == DP_MARKER_OK) read++;
  }
  EXPECT_GT(read, 100);  // else this would not have tested much
}

INSTANTIATE_TEST_SUITE_P(Versions, BpfIds, ::testing::Values(10, 11, 12, 13, 14, 15));

}  // namespace
}  // namespace dynprof
