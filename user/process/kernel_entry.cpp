#include "user/process/kernel_entry.h"

namespace dynprof {

dp_process KernelEntry::process() const {
  dp_process process = {};
  std::uint32_t flags = follow_forks_ ? DP_PROCESS_FOLLOW_FORKS : 0;
  if (python_) {
    process = python_.runtime().fill_bpf(flags | DP_PROCESS_PYTHON);
    const dp_torch_layout& layout = torch_.torch().layout;
    if (layout.compile_id_type) {
      process.torch = layout;
      process.flags |= DP_PROCESS_TORCH;
    }
  } else {
    process.flags = flags;
  }
  if (const NativeSpaceRef& space = native_.space()) {
    process.native_space = space->slot;
    process.native_owner = space->owner;
  }
  return process;
}

Result<void> KernelEntry::introduce() const {
  return kernel_.set_process(static_cast<std::uint32_t>(pid_), process());
}

Result<void> KernelEntry::update() const {
  return kernel_.update_process(static_cast<std::uint32_t>(pid_), process());
}

}  // namespace dynprof
