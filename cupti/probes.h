// The USDT probes (cupti/wire.h says what they carry). Without a profiler each is one nop.
#pragma once

#include <cstdint>

struct dynprof_gpu_record;
struct dynprof_gpu_status;
struct dynprof_gpu_tables;

namespace dynprof_cupti {

void probe_launch(std::uint32_t correlation, std::uint32_t call, std::uint64_t start_ns,
                  std::uint32_t flags);
// The same, for those whose profiler wants some of the launches alone.
void probe_sampled_launch(std::uint32_t correlation, std::uint32_t call, std::uint64_t start_ns,
                          std::uint32_t flags);
bool samples_launches();  // there is such a profiler
void probe_batch(const dynprof_gpu_record* records, std::uint32_t count);
void probe_name(std::uint32_t id, const char* text, std::uint32_t length);
void probe_status(const dynprof_gpu_status& status);

// What a profiler may read instead of being sent it.
dynprof_gpu_tables& tables();

// How many profilers have raised the switch. The kernel writes it.
std::uint16_t profilers_attached();

}  // namespace dynprof_cupti
