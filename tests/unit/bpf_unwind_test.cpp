// The BPF unwinder of native stacks on stacks and tables made for it: each kind of rule, why a stack ends, and
// that it ends whatever tables, mappings and stack hold. unwind_process_test.cpp has it unwind a real process.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/unit/bpf_native_space.h"
#include "tests/unit/bpf_walked_thread.h"

namespace dynprof {
namespace {

using namespace dynprof::testing;
using Addresses = std::vector<std::uint64_t>;

constexpr std::uint64_t kCode = 0x400000, kCodeEnd = 0x500000, kBias = 0x3f0000;
constexpr std::uint64_t kStack = 0x7ffe0000, kStackBytes = 0x10000;
constexpr std::uint64_t kLeaf = kCode + 0x100, kCaller = kCode + 0x1100, kRoot = kCode + 0x2100;

std::uint32_t rule(std::uint32_t kind, std::int32_t bytes = 0, std::uint32_t rbp = DP_RBP_SAME) {
  return kind | ((static_cast<std::uint32_t>(bytes / 8) & 0xffff) << 4) | (rbp << 20);
}
std::uint32_t rule_with(std::uint32_t kind, std::uint32_t argument) {
  return kind | (argument << 4);
}
constexpr std::uint32_t saved_at_cfa(std::uint32_t bytes) { return bytes / 8; }

// A leaf, its caller and the thread's first function, each with one rule; the stack grows down from kTop.
class BpfUnwind : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTop = kStack + 0x8000;

  BpfUnwind() {
    memory.allocate(kStack, kStackBytes);
    process.native_space = NativeSpaceImage::kSlot;
    process.native_owner = NativeSpaceImage::kOwner;
    thread.process = &process;
    thread.read = read_fake;
    thread.context = &memory;
    thread.ip = kLeaf;
    thread.sp = kTop;
  }
  // Functions begin 0x10 before and end 0x100 behind where their callees return to.
  void make(std::uint32_t leaf, std::uint32_t caller = rule(DP_CFA_RSP, 16),
            std::uint32_t root = rule(DP_CFA_OUTERMOST)) {
    UnwindTable table;
    table.base = kCode - kBias;
    const auto pc = [&](std::uint64_t address) {
      return static_cast<std::uint32_t>(address - kCode);
    };
    for (auto [address, of] :
         {std::pair{kLeaf, leaf}, std::pair{kCaller, caller}, std::pair{kRoot, root}}) {
      table.rows.push_back({pc(address - 0x10), of});
      table.rows.push_back({pc(address + 0x100), DP_CFA_NONE});
    }
    space = {};
    space.map(kCode, kCodeEnd, kBias, space.add(table));
    space.publish();
  }
  void put(std::uint64_t address, std::uint64_t word) { memory.write(address, word); }
  // At the CFA of a frame its return address lies.
  void put_return(std::uint64_t cfa, std::uint64_t address) { put(cfa - 8, address); }

  const SampleView& take() {
    space.give_to(thread);
    return sampled.take(thread);
  }
  std::uint32_t end() { return take().sample.native_end; }

  FakeMemory memory;
  dp_process process = {};
  dp_host_thread thread = {};
  NativeSpaceImage space;
  SampledThread sampled;
};

TEST_F(BpfUnwind, FromTheLeafToTheStartOfTheThread) {
  make(rule(DP_CFA_RSP, 32));
  put_return(kTop + 32, kCaller);
  put_return(kTop + 48, kRoot);
  const SampleView& view = take();
  EXPECT_EQ(view.sample.native_end, DP_COUNT_SAMPLES);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller, kRoot}));
  EXPECT_TRUE(view.native[0] & DP_NATIVE_EXACT);
  EXPECT_FALSE(view.native[1] & DP_NATIVE_EXACT);
  EXPECT_EQ(view.sample.reason, DP_COUNT_NOT_PYTHON);
}

TEST_F(BpfUnwind, FromWhereUserModeEnteredTheKernel) {
  make(rule(DP_CFA_RSP, 32));
  put_return(kTop + 32, kCaller);
  put_return(kTop + 48, kRoot);
  thread.in_kernel = 1;
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller, kRoot}));
  thread.ip = 0;  // a thread of the kernel
  EXPECT_EQ(end(), DP_COUNT_NATIVE_REGISTERS);
  EXPECT_TRUE(sampled.addresses().empty());
}

TEST_F(BpfUnwind, EveryKindOfCfa) {
  thread.bp = kTop + 0x100;
  thread.r10 = thread.r13 = thread.rbx = kTop + 0x100;
  const struct {
    const char* name;
    std::uint32_t of_leaf;
    std::uint64_t cfa;
  } kinds[] = {
      {"rsp", rule(DP_CFA_RSP, 64), kTop + 64},
      {"rbp", rule(DP_CFA_RBP, 16), kTop + 0x110},
      {"r10", rule(DP_CFA_R10, -16), kTop + 0xf0},
      {"r13", rule(DP_CFA_R13, 8), kTop + 0x108},
      {"rbx", rule(DP_CFA_RBX, 0), kTop + 0x100},
      {"*rbp", rule(DP_CFA_DEREF_RBP, -8), kTop + 0x200},
      {"*rsp", rule(DP_CFA_DEREF_RSP, 0x40), kTop + 0x200},
      {"*rsp + 8", rule(DP_CFA_DEREF_RSP_8, 0x40), kTop + 0x208},
      // The leaf's address ends in 0, below the threshold.
      {"plt", rule_with(DP_CFA_PLT, 11), kTop + 8},
  };
  for (const auto& kind : kinds) {
    make(kind.of_leaf);
    memory.allocate(kStack, kStackBytes);
    put(kTop + 0xf8, kTop + 0x200);  // *(rbp - 8)
    put(kTop + 0x40, kTop + 0x200);
    put_return(kind.cfa, kCaller);
    put_return(kind.cfa + 16, kRoot);
    EXPECT_EQ(end(), DP_COUNT_SAMPLES) << kind.name;
    EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller, kRoot})) << kind.name;
  }
}

TEST_F(BpfUnwind, AfterThePushOfALinkageEntry) {
  make(rule_with(DP_CFA_PLT, 11));
  thread.ip = kLeaf + 11;
  put_return(kTop + 16, kCaller);
  put_return(kTop + 32, kRoot);
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf + 11, kCaller, kRoot}));
}

TEST_F(BpfUnwind, TheCallersFramePointer) {
  // The leaf saved it 16 below its CFA; the caller is found by it.
  make(rule(DP_CFA_RSP, 32, saved_at_cfa(16)), rule(DP_CFA_RBP, 16));
  put_return(kTop + 32, kCaller);
  put(kTop + 16, kTop + 0x300);
  put_return(kTop + 0x310, kRoot);
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller, kRoot}));
  // Saved relative to rbp: one word above.
  make(rule(DP_CFA_RSP, 32, DP_RBP_ZERO + 1), rule(DP_CFA_RBP, 16));
  thread.bp = kTop + 0x400;
  put(kTop + 0x408, kTop + 0x300);
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller, kRoot}));
}

TEST_F(BpfUnwind, AnUnknownRegisterEndsTheStack) {
  put_return(kTop + 32, kCaller);
  make(rule(DP_CFA_RSP, 32, DP_RBP_LOST), rule(DP_CFA_RBP, 16));
  EXPECT_EQ(end(), DP_COUNT_NATIVE_REGISTER_LOST);
  make(rule(DP_CFA_RSP, 32), rule(DP_CFA_R13, 16));  // known in the interrupted frame only
  EXPECT_EQ(end(), DP_COUNT_NATIVE_REGISTER_LOST);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller}));
}

TEST_F(BpfUnwind, ThroughASignalFrame) {
  // p = rsp + 160: the interrupted rsp and rip lie there, its rbp 40 below.
  make(rule(DP_CFA_SIGNAL, 160), rule(DP_CFA_RBP, 16));
  put(kTop + 160, kTop + 0x1000);
  put(kTop + 168, kCaller);
  put(kTop + 120, kTop + 0x1100);
  put_return(kTop + 0x1110, kRoot);
  const SampleView& view = take();
  EXPECT_EQ(view.sample.native_end, DP_COUNT_SAMPLES);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller, kRoot}));
  EXPECT_TRUE(view.native[1] & DP_NATIVE_EXACT);
}

TEST_F(BpfUnwind, SignalFramesInACircleEnd) {
  make(rule(DP_CFA_SIGNAL, 160));
  put(kTop + 160, kTop);
  put(kTop + 168, kLeaf);
  const SampleView& view = take();
  EXPECT_EQ(view.sample.native_end, DP_COUNT_NATIVE_TOO_DEEP);
  EXPECT_EQ(view.sample.native_count, DP_MAX_NATIVE_FRAMES);
}

TEST_F(BpfUnwind, AStackThatLeadsDownwardsEnds) {
  make(rule(DP_CFA_DEREF_RSP, 8));
  put(kTop + 8, kTop - 0x100);
  EXPECT_EQ(end(), DP_COUNT_NATIVE_FAULT);
  put(kTop + 8, kTop);  // to itself
  EXPECT_EQ(end(), DP_COUNT_NATIVE_FAULT);
}

TEST_F(BpfUnwind, DeepStacksAreCut) {
  make(rule(DP_CFA_RSP, 16));
  for (std::uint64_t at = kTop; at < kStack + kStackBytes; at += 8) put(at, kLeaf);
  const SampleView& view = take();
  EXPECT_EQ(view.sample.native_end, DP_COUNT_NATIVE_TOO_DEEP);
  EXPECT_EQ(view.sample.native_count, DP_MAX_NATIVE_FRAMES);
  // Not one for each frame: pages are read as a whole.
  EXPECT_LT(dp_host_reads(), 2u * (DP_MAX_NATIVE_FRAMES * 16 / DP_PAGE_BYTES + 2));
}

TEST_F(BpfUnwind, ReasonsForTheEnd) {
  put_return(kTop + 32, kCaller);
  make(DP_CFA_NONE);
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_RULE);
  make(rule_with(DP_CFA_UNSUPPORTED, DP_UNWIND_CFA_EXPRESSION));
  EXPECT_EQ(end(), DP_COUNT_NATIVE_UNUSUAL);
  make(rule_with(DP_CFA_UNSUPPORTED, DP_UNWIND_BAD_CIE));
  EXPECT_EQ(end(), DP_COUNT_NATIVE_DAMAGED);
  make(15);  // no such kind
  EXPECT_EQ(end(), DP_COUNT_NATIVE_UNUSUAL);
  make(rule(DP_CFA_RSP, 0x1000));  // beyond the stack
  thread.sp = kStack + kStackBytes - 16;
  EXPECT_EQ(end(), DP_COUNT_NATIVE_FAULT);
  thread.sp = kTop;

  make(rule(DP_CFA_RSP, 32));
  thread.ip = kCodeEnd;
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_MAPPING);
  thread.ip = kCode - 1;
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_MAPPING);
  thread.ip = kCode;  // before the first row
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_RULE);
  thread.ip = kCodeEnd - 1;  // behind the last page of rows
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_RULE);
}

TEST_F(BpfUnwind, OnlyTheSpaceThatIsMeant) {
  make(rule(DP_CFA_OUTERMOST));
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  space.entries()[0].start = NativeSpaceImage::kOwner + 1;  // given to another process
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_TABLE);
  space.publish();
  space.entries()[0].bias = 0;  // being written
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_TABLE);
  space.publish();
  space.entries()[1].serial++;  // of an older table in this slot
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_TABLE);
  space.publish();
  space.entries()[1].table = 1000;
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_TABLE);
  space.publish();
  process.native_space = 5;
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_TABLE);
}

// The mappings are written anew while a rule is searched: it is not used, nor remembered.
TEST_F(BpfUnwind, TornMappingsAreNotBelieved) {
  make(rule(DP_CFA_OUTERMOST));
  struct Torn {
    FakeMemory memory;
    NativeSpaceImage* space;
    int look_ups = 0;
  } torn{{}, &space};
  torn.memory.allocate(kStack, kStackBytes);
  thread.context = &torn;
  thread.read = [](void* context, void* to, __u32 size, __u64 address) {
    return read_fake(&static_cast<Torn*>(context)->memory, to, size, address);
  };
  thread.before_look_up = [](void* context) {
    auto* to = static_cast<Torn*>(context);
    // The first one reads the header.
    if (++to->look_ups == 2) to->space->entries()[0].bias = NativeSpaceImage::next_content();
  };
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_TABLE);
  EXPECT_GT(torn.look_ups, 2);
  // With the new content it is searched again, and then remembered.
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  const int before = torn.look_ups;
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  EXPECT_EQ(torn.look_ups, before + 1);
}

// A return probe of another program has replaced the return address.
TEST_F(BpfUnwind, ThroughAProbedReturn) {
  make(rule(DP_CFA_RSP, 32));
  put_return(kTop + 32, 0x7fffffffe000);  // the kernel's page for probes
  put_return(kTop + 48, kRoot);
  thread.probed_slot = kTop + 24;
  thread.probed_return = kCaller;
  EXPECT_EQ(end(), DP_COUNT_SAMPLES);
  EXPECT_EQ(sampled.addresses(), (Addresses{kLeaf, kCaller, kRoot}));
  thread.probed_return = 0x7fffffffe000;  // itself: no progress
  EXPECT_EQ(end(), DP_COUNT_NATIVE_NO_MAPPING);
}

// Any rule, rows and pages that refer anywhere, mappings in any order, a stack of addresses of itself.
TEST_F(BpfUnwind, AnythingEnds) {
  std::mt19937_64 random(13);
  int whole = 0, deep = 0;
  for (int round = 0; round < 800; ++round) {
    space = {};
    UnwindTable table;
    table.base = random() % 8 ? kCode - kBias : random();
    std::uint32_t pc = 0;
    for (int i = 0; i < 40; ++i) {
      auto bits = static_cast<std::uint32_t>(random());
      // Small offsets, so that stacks go on.
      if (random() % 4) bits = (bits % DP_CFA_KIND_COUNT) | ((1 + bits / 64 % 8) << 4);
      if (random() % 4) bits = rule(DP_CFA_RSP, 8 * static_cast<std::int32_t>(1 + bits % 8));
      table.rows.push_back({pc += static_cast<std::uint32_t>(random() % 0x400), bits});
    }
    const std::uint32_t slot = space.add(table);
    auto& elements = space.elements(slot);
    for (dp_unwind_row& element : elements)
      if (random() % 64 == 0)
        element = {static_cast<__u32>(random()), static_cast<__u32>(random())};
    space.map(kCode, kCodeEnd, kBias, slot);
    for (int i = 0; i < 3; ++i)
      space.map(random() % 4 ? kCodeEnd : random(), ~0ULL, random(), slot);
    space.publish();
    if (random() % 4 == 0) space.entries()[0].end = random();
    if (random() % 4 == 0) space.entries()[1 + random() % 4].end = random();
    for (std::uint64_t at = kStack; at < kStack + kStackBytes; at += 8)
      put(at, random() % 8 ? kCode + random() % 0x6000 : kStack + random() % kStackBytes);
    thread.ip = kCode + random() % 0x6000;
    thread.sp = kStack + random() % (kStackBytes / 8) * 8;
    thread.bp = random() % 4 ? thread.sp + random() % 512 : random();
    thread.r10 = thread.r13 = thread.rbx = thread.bp;
    thread.in_kernel = random() % 2;
    thread.probed_slot = thread.sp + random() % 64 * 8;
    thread.probed_return = kCode + random() % 0x6000;
    const SampleView& view = take();
    ASSERT_LE(view.sample.native_count, DP_MAX_NATIVE_FRAMES);
    ASSERT_LT(view.sample.native_end, DP_COUNTER_COUNT);
    ASSERT_LE(dp_host_reads(), 6u * DP_MAX_NATIVE_FRAMES);
    if (view.sample.native_end == DP_COUNT_SAMPLES) whole++;
    if (view.sample.native_count > 3) deep++;
  }
  // Else this would not have tested much.
  EXPECT_GT(whole, 10);
  EXPECT_GT(deep, 100);
}

}  // namespace
}  // namespace dynprof
