// A thread of one version of CPython, in a fake memory that the BPF programs read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/unit/bpf_walk_host.h"
#include "tests/unit/target_fake_memory.h"
#include "user/target/python_layouts.h"

namespace dynprof::testing {

inline constexpr std::uint64_t kThread = 0x10000;  // its fs base
inline constexpr std::uint64_t kState = 0x20000, kInterpreter = 0x30000, kCframes = 0x40000;
inline constexpr std::uint64_t kFrames = 0x100000, kFrameBytes = 512;
inline constexpr std::uint64_t kCodes = 0x1000000, kCodeBytes = 512;

inline int read_fake(void* context, void* to, __u32 size, __u64 address) {
  auto& memory = *static_cast<FakeMemory*>(context);
  return memory.read(address, std::as_writable_bytes(std::span(static_cast<char*>(to), size))) ? 0
                                                                                               : -1;
}

// A thread of one version of CPython with frames of its own, leaf first.
class WalkedThread {
 public:
  explicit WalkedThread(int minor)
      : layout(*measured_layout(python_version(3, minor))), bpf_(layout.bpf) {
    process.flags = DP_PROCESS_PYTHON;
    process.tstate_offset = 64;
    process.main_interpreter = kInterpreter;
    process.python = bpf_;
    memory.allocate(kThread, 4096);
    memory.allocate(kState, 4096);
    memory.allocate(kCframes, 4096);
    memory.write(kThread + 64, kState);
    memory.write(kState + bpf_.tstate_thread_id, kThread);
    memory.write(kState + bpf_.tstate_interp, kInterpreter);
  }
  std::uint64_t frame_at(std::size_t i) const { return kFrames + i * kFrameBytes; }
  std::uint64_t code_at(std::size_t i) const { return kCodes + i * kCodeBytes; }

  bool has_versions() const { return bpf_.code_version != DP_NO_OFFSET; }
  void set_version(std::size_t i, std::uint32_t version) {
    if (has_versions()) memory.write(code_at(i) + bpf_.code_base + bpf_.code_version, version);
  }
  // Of the code object of a frame, as it is made.
  std::uint32_t identity(std::size_t i) const {
    const auto n = static_cast<__u32>(i);
    return dp_code_identity(100 + n, has_versions() ? 0x4000 + n : 0, 0x1000 + i, 0x2000 + i, 0,
                            0x3000 + i);
  }

  void make(std::size_t count) {
    memory.allocate(kFrames, (count + 1) * kFrameBytes + 4096);
    memory.allocate(kCodes, (count + 1) * kCodeBytes);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t base = frame_at(i) + bpf_.frame_base;
      memory.write(base + bpf_.frame_code, code_at(i));
      memory.write(base + bpf_.frame_previous, i + 1 < count ? frame_at(i + 1) : 0);
      set_unit(i, static_cast<std::int32_t>(3 + i));
      const std::uint64_t code = code_at(i) + bpf_.code_base;
      memory.write(code + bpf_.code_firstlineno, static_cast<std::uint32_t>(100 + i));
      set_version(i, 0x4000 + static_cast<std::uint32_t>(i));
      memory.write<std::uint64_t>(code + bpf_.code_filename, 0x1000 + i);
      memory.write<std::uint64_t>(code + bpf_.code_name, 0x2000 + i);
      memory.write<std::uint64_t>(code + bpf_.code_linetable, 0x3000 + i);
    }
    if (bpf_.cframe_frame == DP_NO_OFFSET) {
      memory.write(kState + bpf_.tstate_frame, frame_at(0));
    } else {
      memory.write(kState + bpf_.tstate_frame, kCframes);
      memory.write(kCframes + bpf_.cframe_frame, frame_at(0));
      memory.write<std::uint64_t>(kCframes + bpf_.cframe_previous, 0);
    }
  }
  void set_unit(std::size_t i, std::int32_t unit) {
    const std::uint64_t at = frame_at(i) + bpf_.frame_base + bpf_.frame_instr;
    if (bpf_.instr_is_index)
      memory.write(at, unit);
    else
      memory.write(at, code_at(i) + bpf_.code_instructions + 2 * static_cast<std::uint64_t>(unit));
  }
  void set_previous(std::size_t i, std::uint64_t frame) {
    memory.write(frame_at(i) + bpf_.frame_base + bpf_.frame_previous, frame);
  }
  // A frame that only marks a call from C.
  void make_shim(std::size_t i) {
    memory.write<std::uint8_t>(frame_at(i) + bpf_.frame_base + bpf_.frame_owner, bpf_.shim_owner);
  }
  const dp_host_stack& walk() {
    dp_host_walk(&process, kThread, read_fake, &memory, stack.get());
    return *stack;
  }
  std::vector<std::uint64_t> codes() const {
    std::vector<std::uint64_t> found;
    for (std::uint32_t i = 0; i < stack->frame_count; ++i) found.push_back(stack->frames[i].code);
    return found;
  }

  FakeMemory memory;
  const PythonLayout& layout;
  dp_process process = {};
  std::unique_ptr<dp_host_stack> stack = std::make_unique<dp_host_stack>();

 private:
  const dp_python_layout& bpf_;
};

}  // namespace dynprof::testing
