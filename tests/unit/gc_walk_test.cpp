// The rings of CPython's garbage collector, whole and as a collection leaves them for a moment.
#include "user/generated/gc_walk.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/target_fake_memory.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {
namespace {

using testing::FakeMemory;

constexpr std::uint64_t kInterpreter = 0x100000;
constexpr std::uint64_t kHeads = kInterpreter + 0x80;  // 24 bytes apart, the last one 40
constexpr std::uint64_t kHeap = 0x400000;
constexpr std::uint64_t kHeapBytes = 0x10000;
constexpr std::uint64_t kWanted = 0xaaaa0, kOther = 0xbbbb0;
constexpr std::size_t kMaxObjects = 1000;

class GcWalk : public ::testing::Test {
 protected:
  GcWalk() : objects_(memory_, layout_) {
    memory_.allocate(kInterpreter, 0x1000);
    memory_.allocate(kHeap, kHeapBytes);
    runtime_.main_interpreter = kInterpreter;
    for (int ring = 0; ring < 4; ++ring) link({head(ring)});
  }

  static std::uint64_t head(int ring) { return kHeads + (ring < 3 ? 24 * ring : 88); }
  // The objects made from now on lie in a page of their own, not at its beginning.
  std::uint64_t next_page() {
    const std::uint64_t page = (next_ / 0x1000 + 1) * 0x1000;
    next_ = page + 64;
    return page;
  }
  // An object's PyGC_Head; the object lies behind it.
  std::uint64_t object(std::uint64_t type) {
    const std::uint64_t at = next_;
    next_ += 64;
    memory_.write(at + 16 + 8, type);
    return at;
  }
  void link(const std::vector<std::uint64_t>& ring) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const std::uint64_t following = ring[(i + 1) % ring.size()];
      memory_.write(ring[i], following);
      memory_.write(following + 8, ring[i]);
    }
  }
  GcInstances find(std::uint64_t anchor) { return find(anchor, objects_); }
  GcInstances find(std::uint64_t anchor, RemoteObjects& objects) {
    PythonObjects python(objects, runtime_);
    const std::uint64_t types[] = {kWanted};
    return find_gc_instances(python, anchor + 16, types, kMaxObjects,
                             LookDeadline(std::chrono::minutes(1), std::chrono::minutes(1)));
  }

  FakeMemory memory_;
  const PythonLayout& layout_ = *measured_layout(python_version(3, 11));
  RemoteObjects objects_;
  PythonRuntime runtime_;
  std::uint64_t next_ = kHeap;
};

using Addresses = std::vector<std::uint64_t>;

TEST_F(GcWalk, FindsObjectsOfAllRings) {
  const std::uint64_t old = object(kWanted), anchor = object(kOther), young = object(kWanted);
  link({head(2), anchor, old});
  link({head(0), young});
  const GcInstances found = find(anchor);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.objects[0], (Addresses{old + 16, young + 16}));
}

TEST_F(GcWalk, KnowsWhatIsInARingStill) {
  const std::uint64_t first = object(kWanted), second = object(kWanted), last = object(kWanted);
  link({head(2), first, second});
  link({head(0), last});
  const Addresses all = {first + 16, second + 16, last + 16};
  EXPECT_TRUE(all_in_rings(memory_, {}));
  EXPECT_TRUE(all_in_rings(memory_, all));
  const std::uint64_t collecting = 2;  // a flag beside the link back
  memory_.write(second + 8, first | collecting);
  EXPECT_TRUE(all_in_rings(memory_, all));
  // CPython takes an object out of its ring before it frees it, and may leave its links as they were.
  link({head(2), first});
  EXPECT_FALSE(all_in_rings(memory_, all));
  EXPECT_TRUE(all_in_rings(memory_, Addresses{first + 16, last + 16}));
  memory_.write(second, std::uint64_t{0});
  EXPECT_FALSE(all_in_rings(memory_, Addresses{second + 16}));
  EXPECT_FALSE(all_in_rings(memory_, Addresses{0x900010})) << "no such memory";
}

// A collection moves the young to an older ring, and that one's to the next, while they are walked: just
// after the last of the youngest ring was seen to lead to its head, it leads elsewhere.
TEST_F(GcWalk, EndsInAnEmptyRingThatDoesNotLeadBack) {
  const std::uint64_t anchor = object(kOther);
  next_page();  // that the first walk did not read
  const std::uint64_t young = object(kWanted);
  link({head(2), anchor});
  link({head(0), young});
  memory_.after_range = [&](std::uint64_t address) {
    if (address == young) memory_.write(young, head(1));
  };
  const GcInstances found = find(anchor);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.objects[0], Addresses{young + 16});
}

TEST_F(GcWalk, EndsInARingOfObjectsThatDoesNotLeadBack) {
  const std::uint64_t anchor = object(kOther), middle = object(kWanted);
  next_page();
  const std::uint64_t young = object(kOther);
  link({head(2), anchor});
  link({head(1), middle});
  link({head(0), young});
  memory_.after_range = [&](std::uint64_t address) {
    if (address == young) memory_.write(young, middle);
  };
  EXPECT_FALSE(find(anchor).complete);
}

TEST_F(GcWalk, EndsInARingWithoutAHead) {
  const std::uint64_t anchor = object(kOther), loop = object(kWanted);
  next_page();
  const std::uint64_t young = object(kOther);
  link({head(2), anchor});
  link({head(0), young});
  link({loop});
  memory_.after_range = [&](std::uint64_t address) {
    if (address == young) memory_.write(young, loop);
  };
  const GcInstances found = find(anchor);
  EXPECT_FALSE(found.complete);
  EXPECT_LE(found.objects[0].size(), kMaxObjects);
}

class ChangingRing : public GcWalk {
 protected:
  void expect_second_walk(RemoteObjects& objects);
};

void ChangingRing::expect_second_walk(RemoteObjects& objects) {
  const std::uint64_t anchor = object(kOther);
  const std::uint64_t page = next_page();  // which the walk alone reads as a whole
  const std::uint64_t first = object(kWanted), second = object(kWanted);
  link({head(2), anchor});
  link({head(0), first, second});
  int walks = 0;
  memory_.after_range = [&](std::uint64_t address) {
    if (address == second) memory_.write(second, head(1));
    if (address != page) return;
    ++walks;
    memory_.write(second, head(0));
  };
  const GcInstances found = find(anchor, objects);
  EXPECT_EQ(walks, 2);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.objects[0], (Addresses{first + 16, second + 16}));
}

TEST_F(ChangingRing, IsWalkedAgain) { expect_second_walk(objects_); }

// The whole look at generated code reads held pages. A second walk of the same ones would find the same.
TEST_F(ChangingRing, IsWalkedAgainWhereMemoryIsHeld) {
  SnapshotMemory pages(memory_);
  RemoteObjects held(pages, layout_);
  expect_second_walk(held);
}

}  // namespace
}  // namespace dynprof
