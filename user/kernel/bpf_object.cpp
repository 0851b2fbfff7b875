#include "user/kernel/bpf_object.h"

#include <bpf/bpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "user/preflight/kernel_features.h"
#include "user/target/descriptor_limit.h"

namespace dynprof {
namespace {

// libbpf reports by printing: its last warnings become part of our own error text.
std::string& libbpf_log() {
  static std::string log;
  return log;
}

int keep_libbpf_message(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN) return 0;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  std::string& log = libbpf_log();
  if (log.size() < 4096) log += line;
  return 0;
}

}  // namespace

void start_of_bpf_call() {
  libbpf_set_print(keep_libbpf_message);
  libbpf_log().clear();
}

Error bpf_error(const std::string& what, int value) {
  std::string first_line = libbpf_log().substr(0, libbpf_log().find('\n'));
  Error e = error(fmt::format("{}: {}{}", what, errno_text(value < 0 ? -value : value),
                              first_line.empty() ? "" : fmt::format(" ({})", first_line)));
  e.errno_value = value < 0 ? -value : value;
  e.hint = "sudo dynprof-bpf doctor";
  if (e.errno_value == EPERM || e.errno_value == EACCES)
    e.hint = "run it with sudo; in a container add --cap-add BPF,PERFMON,SYS_PTRACE";
  if (e.errno_value == EMFILE) e.hint = kRaiseDescriptorLimit;
  return e;
}

// libbpf's message names no cause that a user knows.
Error programs_refused(const char* programs, int value) {
  Error refused = bpf_error(fmt::format("the kernel refused the {} programs", programs), value);
  const std::string missing = missing_kernel_feature();
  if (missing.empty()) return refused;
  return error(fmt::format("this kernel cannot run dynprof-bpf: {}", missing),
               "use a newer kernel: Linux 6.1 to 7.2 are tested");
}

std::uint32_t possible_cpus() {
  return static_cast<std::uint32_t>(std::max(1, libbpf_num_possible_cpus()));
}

void size_by_cpus(std::initializer_list<bpf_map*> maps) {
  for (bpf_map* map : maps) bpf_map__set_max_entries(map, possible_cpus());
}

std::optional<std::uint32_t> run_once(const bpf_program* program) {
  LIBBPF_OPTS(bpf_test_run_opts, options);
  if (bpf_prog_test_run_opts(bpf_program__fd(program), &options) != 0) return std::nullopt;
  return options.retval;
}

}  // namespace dynprof
