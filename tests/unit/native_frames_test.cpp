// How many native frames are kept of a process whose stacks are never the same twice: a frame-table entry may cover
// gigabytes, and each sample then has hundreds of addresses that were not seen before.
#include "user/stacks/native_frames.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/unit/memory_recording.h"
#include "user/target/read_losses.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::size_t kFramesOfObject = 500'000;
constexpr std::size_t kFramesOfProcess = 1'000'000;
constexpr std::size_t kFramesOfSample = 512;
// Above the largest number of a process: none has these.
constexpr pid_t kParent = 0x7fff'fff0;
constexpr pid_t kTarget = kParent + 1;
constexpr pid_t kOther = kParent + 2;

std::uint64_t losses() { return ReadLosses::of_program().count(ReadLoss::kFramesFull); }

// The mappings of a process that has ended: three files of 4 GiB, and code without a file.
NativeSpaceRef large_objects() {
  std::vector<Mapping> mappings;
  for (const char* path : {"/one.so", "/two.so", "/three.so", ""}) {
    Mapping mapping;
    mapping.start = 16 * kGiB * (mappings.size() + 1);
    mapping.end = mapping.start + 4 * kGiB;
    mapping.executable = true;
    mapping.inode = *path ? mappings.size() + 1 : 0;
    mapping.path = path;
    mappings.push_back(std::move(mapping));
  }
  auto space = std::make_shared<NativeSpace>();
  space->pid = kParent;
  space->set_mappings(std::move(mappings));
  return space;
}

struct Target {
  Target() {
    space.set_kept(large_objects());
    other_space.set_kept(large_objects());
  }
  // Offset 0 of an object stands for the object itself.
  static std::uint64_t address(std::size_t object, std::size_t number) {
    return 16 * kGiB * (object + 1) + 16 * (number + 1);
  }
  FrameId frame(std::size_t object, std::size_t number) {
    return frames.user_frame(kTarget, space, address(object, number), 1);
  }
  // The different frames of so many addresses of an object, each seen once.
  std::set<FrameId> frames_of(std::size_t object, std::size_t addresses) {
    std::set<FrameId> found;
    for (std::size_t number = 0; number < addresses; ++number) found.insert(frame(object, number));
    return found;
  }

  MemoryRecording recording;
  NativeFrames frames{recording.writer()};
  AddressSpace space{kTarget};
  AddressSpace other_space{kOther};
};

TEST(NativeFrames, FramesOfOneObjectAreBounded) {
  constexpr std::size_t kExcess = 100 * kFramesOfSample;
  for (const auto& [object, name] : {std::pair(0u, "/one.so"), std::pair(3u, "[jit]")}) {
    Target target;
    const std::uint64_t before = losses();
    EXPECT_EQ(target.frames_of(object, kFramesOfObject + kExcess).size(), kFramesOfObject + 1);
    EXPECT_EQ(losses() - before, kExcess);
    // Those that are known stay what they are; the others are of the object only.
    EXPECT_NE(target.frame(object, 0), target.frame(object, 1));
    EXPECT_EQ(losses() - before, kExcess);
    const FrameId last = target.frame(object, kFramesOfObject);
    EXPECT_EQ(target.frame(object, kFramesOfObject + 1), last);
    EXPECT_EQ(losses() - before, kExcess + 2);
    const Tables& tables = target.recording.read();
    EXPECT_EQ(tables.strings[tables.frames[last].object], name);
    EXPECT_EQ(tables.frames[last].offset, 0u);
  }
}

TEST(NativeFrames, FramesOfOneProcessAreBounded) {
  Target target;
  const std::uint64_t before = losses();
  std::set<FrameId> found;
  for (const std::size_t object : {0u, 1u, 2u})
    found.merge(target.frames_of(object, kFramesOfObject - 1));
  EXPECT_EQ(found.size(), kFramesOfProcess + 1);
  EXPECT_EQ(losses() - before, 3 * (kFramesOfObject - 1) - kFramesOfProcess);
  // Another process has its own.
  const auto other = [&](std::size_t number) {
    return target.frames.user_frame(kOther, target.other_space, Target::address(2, number), 1);
  };
  EXPECT_NE(other(kFramesOfProcess), other(kFramesOfProcess + 1));
}

}  // namespace
}  // namespace dynprof
