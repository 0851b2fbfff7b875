// BPF: programs of two instructions are loaded, the smallest maps made, and closed again.
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>

#include "symbolizer/base/unique_fd.h"
#include "user/doctor/probing.h"
#include "user/kernel/direct_map.h"

namespace dynprof {
namespace {

constexpr const char* kBtf = "/sys/kernel/btf/vmlinux";

constexpr bpf_insn instruction(std::uint8_t code, std::uint8_t to, std::uint8_t from,
                               std::int16_t offset, std::int32_t number) {
  bpf_insn one = {};
  one.code = code;
  one.dst_reg = to & 0xf;
  one.src_reg = from & 0xf;
  one.off = offset;
  one.imm = number;
  return one;
}

constexpr bpf_insn kReturnZero[] = {
    instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0),
    instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
};
// Exchanges a word on its stack: an atomic operation that returns the old value (BPF_XCHG).
constexpr bpf_insn kExchange[] = {
    instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0),
    instruction(BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, BPF_REG_0, -8, 0),
    instruction(BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_10, BPF_REG_0, -8, BPF_XCHG),
    instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0),
    instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
};

// An errno value where the kernel does not take it.
int load(bpf_prog_type type, std::span<const bpf_insn> program, UniqueFd* loaded = nullptr) {
  UniqueFd fd(bpf_prog_load(type, "doctor", "GPL", program.data(), program.size(), nullptr));
  if (!fd) return errno;
  if (loaded) *loaded = std::move(fd);
  return 0;
}

int attach(const UniqueFd& program, const char* tracepoint) {
  UniqueFd link(bpf_raw_tracepoint_open(tracepoint, program.get()));
  return link ? 0 : errno;
}

Check btf_check() {
  return judge_trial({.name = "btf",
                      .works = fmt::format("{} can be read", kBtf),
                      .fails = fmt::format("{} cannot be read", kBtf),
                      .consequence = "BPF programs cannot find the kernel's fields",
                      .fix = "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y"},
                     access(kBtf, R_OK) == 0 ? 0 : errno, true);
}

Check ring_buffer_check(const OwnRights& rights) {
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_RINGBUF, "doctor", 0, 0,
                              static_cast<__u32>(getpagesize()), nullptr));
  return judge_trial({.name = "ring-buffer",
                      .works = "a BPF ring buffer was made",
                      .fails = "no BPF ring buffer",
                      .consequence = "samples cannot reach user space",
                      .fix = "boot a kernel that has BPF_MAP_TYPE_RINGBUF"},
                     map ? 0 : errno, rights.load_programs);
}

Check map_check(const OwnRights& rights) {
  const bool there = libbpf_probe_bpf_map_type(BPF_MAP_TYPE_ARRAY_OF_MAPS, nullptr) == 1;
  const int problem = there ? 0 : rights.load_programs ? EINVAL : EPERM;
  return judge_trial({.name = "maps-of-maps",
                      .works = "a BPF array of maps was made",
                      .fails = "no BPF array of maps",
                      .consequence = "the kernel side cannot hold unwind tables",
                      .fix = "boot a kernel that has BPF_MAP_TYPE_ARRAY_OF_MAPS"},
                     problem, rights.load_programs);
}

struct Helper {
  bpf_func_id id;
  bpf_prog_type program;
  const char* name;
};
// Those that the oldest kernel with BPF tracing does not have.
constexpr Helper kHelpers[] = {
    {BPF_FUNC_probe_read_user, BPF_PROG_TYPE_PERF_EVENT, "bpf_probe_read_user"},
    {BPF_FUNC_probe_read_user_str, BPF_PROG_TYPE_RAW_TRACEPOINT, "bpf_probe_read_user_str"},
    {BPF_FUNC_probe_read_kernel, BPF_PROG_TYPE_RAW_TRACEPOINT, "bpf_probe_read_kernel"},
    {BPF_FUNC_probe_read_kernel_str, BPF_PROG_TYPE_RAW_TRACEPOINT, "bpf_probe_read_kernel_str"},
    {BPF_FUNC_ringbuf_output, BPF_PROG_TYPE_PERF_EVENT, "bpf_ringbuf_output"},
    {BPF_FUNC_ringbuf_query, BPF_PROG_TYPE_PERF_EVENT, "bpf_ringbuf_query"},
    {BPF_FUNC_get_current_task_btf, BPF_PROG_TYPE_PERF_EVENT, "bpf_get_current_task_btf"},
    {BPF_FUNC_task_pt_regs, BPF_PROG_TYPE_PERF_EVENT, "bpf_task_pt_regs"},
    {BPF_FUNC_get_attach_cookie, BPF_PROG_TYPE_KPROBE, "bpf_get_attach_cookie"},
    {BPF_FUNC_get_stack, BPF_PROG_TYPE_RAW_TRACEPOINT, "bpf_get_stack"},
};

Check helper_check(const OwnRights& rights) {
  if (!rights.load_programs) return judge_trial({.name = "bpf-helpers"}, EPERM, false);
  std::vector<std::string> lacking;
  for (const Helper& helper : kHelpers)
    if (libbpf_probe_bpf_helper(helper.program, helper.id, nullptr) != 1)
      lacking.emplace_back(helper.name);
  if (lacking.empty())
    return {"bpf-helpers", CheckState::kOk,
            fmt::format("{} of {} newer helpers are available", std::size(kHelpers),
                        std::size(kHelpers)),
            "", ""};
  return {"bpf-helpers", CheckState::kMissing,
          fmt::format("this kernel lacks {}", fmt::join(lacking, ", ")),
          "the kernel refuses the programs that call them",
          "boot a newer kernel; with lockdown, in integrity mode at most"};
}

Check direct_map_check(const OwnRights& rights) {
  if (!rights.load_programs) return judge_trial({.name = "direct-map"}, EPERM, false);
  if (find_direct_map().base != 0)
    return {"direct-map", CheckState::kOk, "a test read by page tables succeeded: fast samples", "",
            ""};
  const std::unique_ptr<btf, void (*)(btf*)> types(btf__load_vmlinux_btf(), btf__free);
  const bool cast =
      types && btf__find_by_name_kind(types.get(), "bpf_rdonly_cast", BTF_KIND_FUNC) > 0;
  return {"direct-map", CheckState::kDegraded,
          cast ? "the kernel's map of all memory was not found"
               : "bpf_rdonly_cast is not in this kernel's BTF",
          "the kernel's helper reads the target's memory, each sample takes longer", ""};
}

}  // namespace

std::vector<Check> bpf_checks(const OwnRights& rights) {
  libbpf_set_print(nullptr);  // it explains each refusal at length
  const bool may = rights.load_programs;
  const std::string fix = "in a container: --cap-add BPF,PERFMON,SYS_PTRACE";
  std::vector<Check> checks = {btf_check()};
  const auto program = [&](const char* name, const char* what, bpf_prog_type type,
                           std::span<const bpf_insn> text, UniqueFd* loaded = nullptr) {
    checks.push_back(judge_trial({.name = name,
                                  .works = fmt::format("{} was loaded", what),
                                  .fails = fmt::format("the kernel refused {}", what),
                                  .consequence = "the sampling programs need it",
                                  .fix = fix},
                                 load(type, text, loaded), may));
  };
  UniqueFd tracer;
  program("bpf-perf-event", "a perf_event program", BPF_PROG_TYPE_PERF_EVENT, kReturnZero);
  program("bpf-raw-tracepoint", "a raw tracepoint program", BPF_PROG_TYPE_RAW_TRACEPOINT,
          kReturnZero, &tracer);
  program("bpf-uprobe", "a uprobe program", BPF_PROG_TYPE_KPROBE, kReturnZero);
  program("bpf-atomics", "a program with an atomic exchange", BPF_PROG_TYPE_KPROBE, kExchange);
  checks.push_back(ring_buffer_check(rights));
  checks.push_back(map_check(rights));
  checks.push_back(helper_check(rights));
  checks.push_back(direct_map_check(rights));
  int lives = tracer ? 0 : EPERM;
  for (const char* name : {"sched_process_fork", "sched_process_exec", "sched_process_exit"})
    if (lives == 0) lives = attach(tracer, name);
  checks.push_back(
      judge_trial({.name = "process-events",
                   .works = "raw tracepoints of fork, exec and exit were attached: child processes",
                   .fails = "a raw tracepoint of fork, exec or exit cannot be attached",
                   .consequence = "processes cannot be followed",
                   .fix = fix},
                  lives, may));
  int waits = tracer ? 0 : EPERM;
  for (const char* name : {"sched_switch", "sched_wakeup"})
    if (waits == 0) waits = attach(tracer, name);
  checks.push_back(
      judge_trial({.name = "off-cpu",
                   .works = "raw tracepoints of switch and wakeup were attached: waits",
                   .fails = "a raw tracepoint of switch or wakeup cannot be attached",
                   .failed = CheckState::kDegraded,
                   .consequence = "waits are not recorded",
                   .fix = fix},
                  waits, may));
  return checks;
}

}  // namespace dynprof
