#include "cupti/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cupti/devices.h"
#include "cupti/libc.h"
#include "cupti/probes.h"
#include "cupti/state.h"

// The last status, found by its symbol in the file's .symtab: tests read it from outside. Set when the
// probe has fired and the file has it.
extern "C" {
__attribute__((visibility("hidden"), used)) dynprof_gpu_status dynprof_gpu_last_status{};
}

namespace dynprof_cupti {
namespace {

dynprof_gpu_record batch[DYNPROF_GPU_MAX_BATCH];
std::uint32_t batched = 0;
std::uint32_t names_sent = 0;

struct Dump {
  int fd = -1;
  struct stat identity {};
  std::uint64_t written = 0;
  std::uint64_t limit = 0;
};
Dump dump;

// fstat() became a symbol of libc only in 2.33.
bool identify(int fd, struct stat* identity) { return syscall(SYS_fstat, fd, identity) == 0; }

// Programs close all descriptors they do not know, and use the numbers again: what is written to must
// still be our file.
bool still_ours() {
  struct stat now {};
  return identify(dump.fd, &now) && now.st_dev == dump.identity.st_dev &&
         now.st_ino == dump.identity.st_ino;
}

bool write_all(const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = write(dump.fd, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

bool write_chunk(std::uint32_t type, std::uint32_t id, const void* data, std::uint32_t bytes) {
  if (dump.fd < 0) return false;
  const dynprof_gpu_chunk chunk{type, bytes, id, 0};
  const std::uint64_t total = sizeof chunk + bytes;
  if (dump.written + total > dump.limit) return false;
  if (!still_ours() || !write_all(&chunk, sizeof chunk) || !write_all(data, bytes)) {
    dump.fd = -1;  // not closed: it may be somebody else's by now
    return false;
  }
  dump.written += total;
  return true;
}

// Appends text to path[at…]; the new end, or `size` where it does not fit.
std::size_t put(char* path, std::size_t size, std::size_t at, const char* text,
                std::size_t length) {
  if (at + length >= size) return size;
  memcpy(path + at, text, length);
  return at + length;
}

std::size_t put_pid(char* path, std::size_t size, std::size_t at) {
  char digits[12];
  std::size_t first = sizeof digits;
  for (auto pid = static_cast<std::uint32_t>(getpid()); pid != 0; pid /= 10)
    digits[--first] = static_cast<char>('0' + pid % 10);
  return put(path, size, at, digits + first, sizeof digits - first);
}

bool expand(const char* pattern, char* path, std::size_t size) {
  std::size_t at = 0;
  for (; *pattern && at < size; ++pattern) {
    if (pattern[0] == '%' && pattern[1] == 'p') {
      at = put_pid(path, size, at);
      ++pattern;
    } else {
      at = put(path, size, at, pattern, 1);
    }
  }
  if (at >= size) return false;
  path[at] = '\0';
  return true;
}

void send_new_names() {
  const std::uint32_t count = state.names.count();
  for (; names_sent < count; ++names_sent) {
    const std::uint32_t id = names_sent + 1;
    probe_name(id, state.names.text(id), state.names.length(id));
    if (dump.fd >= 0)
      write_chunk(DYNPROF_GPU_CHUNK_NAME, id, state.names.text(id), state.names.length(id));
  }
}

}  // namespace

bool dump_is_open() { return dump.fd >= 0; }

int open_dump(const char* pattern) {
  static char path[4096];
  if (!expand(pattern, path, sizeof path)) return ENAMETOOLONG;
  dump.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (dump.fd < 0) return errno;
  dump.limit = environment_number("DYNPROF_GPU_DUMP_BYTES", 1ull << 30);
  dynprof_gpu_file header{};
  memcpy(header.magic, DYNPROF_GPU_FILE_MAGIC, sizeof header.magic);
  header.record_bytes = DYNPROF_GPU_RECORD_BYTES;
  header.pid = static_cast<std::uint32_t>(getpid());
  header.realtime_offset_ns = realtime_offset_ns();
  dump.written = sizeof header;
  if (identify(dump.fd, &dump.identity) && write_all(&header, sizeof header)) return 0;
  const int error = errno;
  close(dump.fd);
  dump.fd = -1;
  return error;
}

void append(const dynprof_gpu_record& record) {
  note_device(record.device);
  batch[batched++] = record;
  if (batched == DYNPROF_GPU_MAX_BATCH) send_batch();
}

void send_batch() {
  if (batched == 0) return;
  send_new_names();
  probe_batch(batch, batched);
  state.counters.records.fetch_add(batched, std::memory_order_relaxed);
  if (dump.identity.st_ino != 0 &&
      !write_chunk(DYNPROF_GPU_CHUNK_RECORDS, 0, batch, batched * DYNPROF_GPU_RECORD_BYTES))
    state.counters.dropped_dump.fetch_add(batched, std::memory_order_relaxed);
  batched = 0;
}

void drain_ring() {
  dynprof_gpu_record record;
  while (state.ring.pop(record)) append(record);
  send_batch();
}

void replay_names() { names_sent = 0; }

void send_holder(const char* name) {
  const std::size_t length = strnlen(name, DYNPROF_GPU_MAX_NAME);
  if (length == 0) return;
  probe_name(DYNPROF_GPU_HOLDER, name, static_cast<std::uint32_t>(length));
  write_chunk(DYNPROF_GPU_CHUNK_NAME, DYNPROF_GPU_HOLDER, name, static_cast<std::uint32_t>(length));
}

void send_status(std::uint32_t code, std::uint32_t detail, std::uint32_t cupti_version,
                 std::uint32_t session) {
  const Counters& counters = state.counters;
  dynprof_gpu_status now{};
  now.bytes = sizeof now;
  now.code = code;
  now.detail = detail;
  now.cupti_version = cupti_version;
  now.calls = counters.calls;
  now.records = counters.records;
  now.dropped_ring = counters.dropped_ring;
  now.dropped_rate = counters.dropped_rate;
  now.dropped_rate_records = counters.dropped_rate_records;
  now.dropped_cupti = counters.dropped_cupti;
  now.dropped_dump = counters.dropped_dump;
  now.unnamed = counters.unnamed;
  now.implausible_times = counters.implausible_times;
  now.unknown_records = counters.unknown_records;
  now.foreign_buffers = counters.foreign_buffers;
  now.session = session;
  now.refused_calls = counters.refused_calls;
  probe_status(now);
  write_chunk(DYNPROF_GPU_CHUNK_STATUS, 0, &now, sizeof now);
  dynprof_gpu_last_status = now;
}

}  // namespace dynprof_cupti
