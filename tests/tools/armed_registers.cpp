// armed_registers TID SECONDS: samples a thread at 1,999 Hz and prints `samples N armed M`: in how many of
// them a hardware watchpoint was armed in the CPU that it ran on. Exit 77: this kernel does not tell.
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "debug_registers.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/kernel/perf_event.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: armed_registers TID SECONDS\n");
    return 2;
  }
  auto opened = dynprof::open_object<debug_registers_bpf>("debug-register");
  if (!opened) return 1;
  const auto& skeleton = *opened;
  skeleton->rodata->tid = static_cast<std::uint32_t>(std::atoi(argv[1]));
  if (!dynprof::load_object("debug-register", *skeleton)) {
    fmt::print("this kernel keeps perf events of threads otherwise\n");
    return 77;
  }
  auto events = dynprof::open_sampling_events(dynprof::SamplingEvent::kCpuClock, 1999);
  if (!events) {
    fmt::print(stderr, "error: {}\n", events.error().what);
    return 1;
  }
  std::vector<std::unique_ptr<bpf_link, decltype(&bpf_link__destroy)>> links;
  for (auto& event : events->cpus) {
    links.emplace_back(
        bpf_program__attach_perf_event(skeleton->progs.look_at_registers, event.fd.get()),
        bpf_link__destroy);
    if (!links.back()) return 1;
    event.fd.release();
  }
  usleep(static_cast<useconds_t>(std::atof(argv[2]) * 1e6));
  fmt::print("samples {} armed {}\n", skeleton->bss->samples, skeleton->bss->armed);
  return 0;
}
