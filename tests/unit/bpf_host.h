/* Stands in for the macros of <bpf/bpf_helpers.h>, <bpf/bpf_core_read.h> and <bpf/bpf_tracing.h> where BPF programs are
 * compiled for the host. Helpers are defined by who includes this. */
#ifndef DYNPROF_TESTS_UNIT_BPF_HOST_H
#define DYNPROF_TESTS_UNIT_BPF_HOST_H

#include <stddef.h>

#undef __always_inline
#undef __noinline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline, unused))
#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value)* name
#define __array(name, value) __typeof__(value)* name[]

#define HOST_READ_1(from, field) ((from)->field)
#define HOST_READ_2(from, by, field) ((from)->by->field)
#define HOST_READ_OF(one, two, chosen, ...) chosen
#define BPF_CORE_READ(from, ...) \
  HOST_READ_OF(__VA_ARGS__, HOST_READ_2, HOST_READ_1, )(from, __VA_ARGS__)
#define bpf_core_field_offset(type, field) offsetof(type, field)
#define bpf_core_field_exists(...) 1
#define bpf_core_type_size(type) sizeof(type)
#define PT_REGS_IP(registers) ((registers)->rip)

#include "bpf/kernel_types.h"

#endif
