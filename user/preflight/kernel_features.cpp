#include "user/preflight/kernel_features.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

namespace dynprof {
namespace {

struct Helper {
  bpf_prog_type program;
  bpf_func_id id;
  const char* name;
  const char* since;  // for the message alone
};

// Those of our helpers that came last.
constexpr Helper kHelpers[] = {
    {BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_get_current_task_btf, "bpf_get_current_task_btf", "5.11"},
    {BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_task_pt_regs, "bpf_task_pt_regs", "5.15"},
    {BPF_PROG_TYPE_KPROBE, BPF_FUNC_get_attach_cookie, "bpf_get_attach_cookie", "5.15"},
};

bool is_locked_down() {
  std::string modes;
  std::ifstream file("/sys/kernel/security/lockdown");
  return std::getline(file, modes) && modes.find("[confidentiality]") != modes.npos;
}

}  // namespace

std::string missing_kernel_feature() {
  if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0)
    return "it has no BTF of its own (/sys/kernel/btf/vmlinux)";
  if (is_locked_down()) return "it is locked down in confidentiality mode";
  if (libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF, nullptr) == 0)
    return "its BPF has no ring buffer (Linux 5.8)";
  for (const Helper& helper : kHelpers)
    if (libbpf_probe_bpf_helper(helper.program, helper.id, nullptr) == 0)
      return fmt::format("its BPF has no helper {} (Linux {})", helper.name, helper.since);
  return {};
}

}  // namespace dynprof
