// Arguments in registers or constants: every consumer of USDT notes understands those.
#define STAP_SDT_ARG_CONSTRAINT nr
#define _SDT_HAS_SEMAPHORES 1
#include "cupti/probes.h"

#include <sys/sdt.h>

#include "cupti/wire.h"

// The kernel counts the profilers of each probe here, found through the notes in the ELF file.
#define DYNPROF_SEMAPHORE __attribute__((section(".probes"), used, visibility("hidden")))
extern "C" {
DYNPROF_SEMAPHORE volatile unsigned short dynprof_gpu_launch_semaphore = 0;
DYNPROF_SEMAPHORE volatile unsigned short dynprof_gpu_launch_sampled_semaphore = 0;
DYNPROF_SEMAPHORE volatile unsigned short dynprof_gpu_batch_semaphore = 0;
DYNPROF_SEMAPHORE volatile unsigned short dynprof_gpu_name_semaphore = 0;
DYNPROF_SEMAPHORE volatile unsigned short dynprof_gpu_status_semaphore = 0;
DYNPROF_SEMAPHORE dynprof_gpu_tables dynprof_gpu_tables_semaphore{};
}

// A probe's nop and this five-byte one: Linux 6.18 and later turn a probe on the latter into a call,
// half the price of a breakpoint; older ones execute it by single steps, twice the price of the nop.
// Whoever attaches may choose: the arguments are still where the note says.
#define DYNPROF_WIDE_NOP asm volatile(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00")

namespace dynprof_cupti {

void probe_launch(std::uint32_t correlation, std::uint32_t call, std::uint64_t start_ns,
                  std::uint32_t flags) {
  STAP_PROBE4(dynprof, gpu_launch, correlation, call, start_ns, flags);
  DYNPROF_WIDE_NOP;
}

void probe_sampled_launch(std::uint32_t correlation, std::uint32_t call, std::uint64_t start_ns,
                          std::uint32_t flags) {
  STAP_PROBE4(dynprof, gpu_launch_sampled, correlation, call, start_ns, flags);
  DYNPROF_WIDE_NOP;
}

bool samples_launches() { return dynprof_gpu_launch_sampled_semaphore > 0; }

void probe_batch(const dynprof_gpu_record* records, std::uint32_t count) {
  STAP_PROBE2(dynprof, gpu_batch, records, count);
}

void probe_name(std::uint32_t id, const char* text, std::uint32_t length) {
  STAP_PROBE3(dynprof, gpu_name, id, text, length);
}

void probe_status(const dynprof_gpu_status& status) {
  STAP_PROBE4(dynprof, gpu_status, status.code, status.detail, &status, status.bytes);
}

dynprof_gpu_tables& tables() {
  STAP_PROBE(dynprof, gpu_tables);
  return dynprof_gpu_tables_semaphore;
}

std::uint16_t profilers_attached() {
  return static_cast<std::uint16_t>(dynprof_gpu_launch_semaphore +
                                    dynprof_gpu_launch_sampled_semaphore);
}

}  // namespace dynprof_cupti
