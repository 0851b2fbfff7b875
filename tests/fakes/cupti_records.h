/* The records that the fake CUPTI hands over, made of what the fake driver has done. */
#ifndef DYNPROF_TESTS_FAKES_CUPTI_RECORDS_H
#define DYNPROF_TESTS_FAKES_CUPTI_RECORDS_H

#include <string.h>

#include "cupti/cupti_abi.h"
#include "tests/fakes/fake_cuda.h"

enum { kMaxRecord = 216 };

/* CUpti_ActivityKernel10 is 216 bytes: ours and what we do not look at. */
union record {
  uint32_t kind;
  struct CuptiKernel kernel;
  struct CuptiMemcpy copy;
  struct CuptiMemcpyPeer peer;
  struct CuptiMemset set;
  struct CuptiSynchronization sync;
  uint8_t bytes[kMaxRecord];
};

/* Its size. `offset` is added to its times. */
static size_t make_record(const struct fake_work* work, union record* to, uint64_t offset) {
  const uint64_t start = work->start + offset, end = work->end + offset;
  memset(to, 0, sizeof *to);
  switch (work->kind) {
    case kCuptiKindConcurrentKernel:
      to->kernel = (struct CuptiKernel){.kind = work->kind,
                                        .registers_per_thread = 32,
                                        .start = start,
                                        .end = end,
                                        .context = 1,
                                        .stream = work->stream,
                                        .dynamic_shared = (int32_t)work->shared,
                                        .correlation = work->correlation,
                                        .name = work->name,
                                        .graph = work->graph,
                                        .graph_node = work->graph_node};
      for (int i = 0; i < 3; ++i) {
        to->kernel.grid[i] = work->grid[i];
        to->kernel.block[i] = work->block[i];
      }
      return kMaxRecord;
    case kCuptiKindMemcpy:
      to->copy = (struct CuptiMemcpy){.kind = work->kind,
                                      .copy_kind = work->copy_kind,
                                      .source_kind = work->source_kind,
                                      .destination_kind = work->destination_kind,
                                      .flags = 1,
                                      .bytes = work->bytes,
                                      .start = start,
                                      .end = end,
                                      .context = 1,
                                      .stream = work->stream,
                                      .correlation = work->correlation};
      return 96;
    case kCuptiKindMemcpyPeer:
      to->peer = (struct CuptiMemcpyPeer){.kind = work->kind,
                                          .copy_kind = work->copy_kind,
                                          .source_kind = work->source_kind,
                                          .destination_kind = work->destination_kind,
                                          .flags = 1,
                                          .bytes = work->bytes,
                                          .start = start,
                                          .end = end,
                                          .context = 1,
                                          .stream = work->stream,
                                          .destination_device = 1,
                                          .source_context = 1,
                                          .destination_context = 2,
                                          .correlation = work->correlation};
      return 96;
    case kCuptiKindMemset:
      to->set = (struct CuptiMemset){.kind = work->kind,
                                     .bytes = work->bytes,
                                     .start = start,
                                     .end = end,
                                     .context = 1,
                                     .stream = work->stream,
                                     .correlation = work->correlation,
                                     .flags = 1,
                                     .memory_kind = work->destination_kind};
      return 88;
    default:
      to->sync = (struct CuptiSynchronization){.kind = work->kind,
                                               .type = work->sync_type,
                                               .start = start,
                                               .end = end,
                                               .context = 1,
                                               .stream = work->stream,
                                               .correlation = work->correlation};
      return 56;
  }
}

#endif
