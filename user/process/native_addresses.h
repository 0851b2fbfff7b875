// Addresses of native stacks of one process: what each is, looked up once for as long as its mappings stay.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "user/process/process_python.h"
#include "user/stacks/eval_ranges.h"
#include "user/stacks/native_frames.h"
#include "user/stacks/native_unwind.h"

namespace dynprof {

struct NativeAddress {
  FrameId frame = 0;
  bool in_eval_loop = false;  // of CPython
};

class NativeAddresses {
 public:
  NativeAddresses(pid_t pid, const ProcessPython& python)
      : pid_(pid), python_(python), mappings_(pid) {}

  // Null: native stacks are not wanted. Call KernelEntry::update() after a change.
  void set_space(NativeSpaceRef space);
  const NativeSpaceRef& space() const { return space_; }
  AddressSpace& mappings() { return mappings_; }

  // Of a word of a native stack: an address, | DP_NATIVE_EXACT.
  NativeAddress find(std::uint64_t word, NativeFrames& frames, std::uint64_t now_ns);
  // Whether the place of the interpreter's loop is known; it is looked for the first time.
  bool knows_eval_loop();

  void inherit(const NativeAddresses& parent);
  void forget();
  // Why native frames are not among the Python frames; once, "" otherwise.
  std::string take_problem();

 private:
  pid_t pid_;
  const ProcessPython& python_;
  AddressSpace mappings_;
  NativeSpaceRef space_;
  std::uint32_t version_ = 0;  // of the space when known_ was filled
  std::unordered_map<std::uint64_t, NativeAddress> known_;
  std::optional<EvalRanges> eval_ranges_;
  bool told_stripped_ = false;
};

}  // namespace dynprof
