#include "user/process/kernel_entry.h"

namespace dynprof {

dp_process KernelEntry::process() const {
  dp_process process = {};
  if (python_) {
    process = python_.runtime().fill_bpf(flags_ | DP_PROCESS_PYTHON);
    const dp_torch_layout& layout = torch_.torch().layout;
    if (layout.compile_id_type) {
      process.torch = layout;
      process.flags |= DP_PROCESS_TORCH;
    }
  } else {
    process.flags = flags_;
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

void KernelEntry::expect_gpu_work() {
  if (flags_ & DP_PROCESS_GPU_WORK) return;
  flags_ |= DP_PROCESS_GPU_WORK;
  (void)update();  // without it the usual limits hold, and a note says what they leave out
}

}  // namespace dynprof
