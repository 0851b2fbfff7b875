/* Changes the memory of the Python it is called from, over and over, as a profiler reads it: pointers into
 * nowhere and in circles, lengths of 2^60, objects of other types, and what was there before again. The
 * caller holds the GIL and never gets it back, so that only a reader from outside notices. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct span {
  uint64_t begin, bytes;
};

enum { kMaxRegions = 256, kMaxHot = 4096, kChanges = 2048, kMapsBytes = 1 << 20, kPage = 4096 };

static struct span regions[kMaxRegions], hot[kMaxHot];
static int hot_count;
static int region_count;
static char maps[kMapsBytes];
static struct {
  uint64_t* at;
  uint64_t was;
} changes[kChanges];
static uint64_t state;

static uint64_t draw(void) { /* xorshift64* */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1DULL;
}

static uint64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static const char* hex(const char* text, uint64_t* value) {
  for (*value = 0;; text++) {
    if (*text >= '0' && *text <= '9')
      *value = *value * 16 + (uint64_t)(*text - '0');
    else if (*text >= 'a' && *text <= 'f')
      *value = *value * 16 + (uint64_t)(*text - 'a' + 10);
    else
      return text;
  }
}

static int holds(uint64_t begin, uint64_t end, const void* address) {
  return (uint64_t)address >= begin && (uint64_t)address < end;
}

static int is_readable(uint64_t address) {
  char byte;
  struct iovec to = {&byte, 1}, from = {(void*)address, 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/* With glibc 2.43 guard pages of threads' stacks lie within mappings that are writable by their rights. */
static void add_readable(uint64_t begin, uint64_t end) {
  while (begin < end && region_count < kMaxRegions) {
    uint64_t part_end = begin;
    while (part_end < end && is_readable(part_end)) part_end += kPage;
    if (part_end > begin) regions[region_count++] = (struct span){begin, part_end - begin};
    begin = part_end + kPage;
  }
}

/* Writable private memory, but for what this thread and libc need to go on. */
static void find_regions(void) {
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  size_t size = 0;
  ssize_t n;
  while (size < sizeof maps - 1 && (n = read(fd, maps + size, sizeof maps - 1 - size)) > 0)
    size += (size_t)n;
  close(fd);
  maps[size] = 0;
  uint64_t kept_end = 0;
  for (char *line = maps, *next; *line && region_count < kMaxRegions; line = next) {
    uint64_t begin, end;
    next = strchr(line, '\n');
    if (!next) break;
    *next++ = 0;
    const char* rest = hex(hex(line, &begin) + 1, &end);
    /* The .bss of a library is an anonymous mapping right behind its file's. */
    const int behind_kept = begin == kept_end;
    const int keep = strstr(rest, "[stack") || strstr(rest, "/libc") || strstr(rest, "/ld-") ||
                     strstr(rest, "scribble") || strstr(rest, "/libffi") || behind_kept ||
                     holds(begin, end, __builtin_thread_pointer()) || holds(begin, end, maps);
    if (keep) kept_end = end;
    if (keep || strncmp(rest, " rw-p", 5) != 0) continue;
    add_readable(begin, end);
  }
}

static int in_region(struct span span) {
  for (int i = 0; i < region_count; i++)
    if (span.begin >= regions[i].begin &&
        span.begin + span.bytes <= regions[i].begin + regions[i].bytes)
      return 1;
  return 0;
}

static uint64_t* word_in(struct span span) {
  return (uint64_t*)(span.begin + draw() % (span.bytes / 8) * 8);
}

static uint64_t* pick(void) {
  return word_in(draw() % 10 < 7 ? hot[draw() % (uint64_t)hot_count]
                                 : regions[draw() % (uint64_t)region_count]);
}

static uint64_t worse(uint64_t* at) {
  struct span region = regions[draw() % (uint64_t)region_count];
  switch (draw() % 14) {
    case 0:
      return 1ULL << 60;
    case 1:
      return 0;
    case 2:
      return (uint64_t)at; /* a circle of one */
    case 3:
      return hot[draw() % (uint64_t)hot_count].begin; /* another object */
    case 4:
      return draw();
    case 5:
      return 0xffff888000000000ULL + draw() % (1ULL << 40); /* the kernel's */
    case 6:
      return draw() | 1ULL << 62; /* no address at all */
    case 7:
      return 0x10;
    case 8:
      return *at ^ 1ULL << draw() % 64;
    case 9:
      return draw() % 65536;
    case 10:
      return INT64_MAX;
    case 11:
      return UINT64_MAX;
    case 12:
      return *pick(); /* longer circles */
    default:
      return region.begin + region.bytes - 1 - draw() % 16; /* across an end */
  }
}

/* Changes memory for `milliseconds`, seen from outside as a thread that computes and now and then sleeps; says
 * so, and ends the process. */
void scribble(const struct span* spans, int count, uint64_t seed, uint64_t milliseconds) {
  static const char kDone[] = "survived\n";
  state = seed | 1;
  find_regions();
  /* The caller's array lies in the memory that is changed. */
  for (int i = 0; i < count && hot_count < kMaxHot; i++)
    if (in_region(spans[i])) hot[hot_count++] = spans[i];
  const uint64_t end = now_ms() + milliseconds;
  for (uint64_t round = 0; now_ms() < end; round++) {
    const int many = (int)(draw() % (round % 7 == 0 ? kChanges : 24)) + 1;
    for (int i = 0; i < many; i++) {
      changes[i].at = pick();
      changes[i].was = *changes[i].at;
      *(volatile uint64_t*)changes[i].at = worse(changes[i].at);
    }
    if (round % 50 == 49) {
      struct timespec pause = {0, 2000000};
      nanosleep(&pause, NULL);
    } else {
      for (volatile uint64_t spin = draw() % 400000; spin > 0; spin--) {
      }
    }
    /* What was there before again, last change first: everything is readable for a while. */
    for (int i = many; i-- > 0;) *(volatile uint64_t*)changes[i].at = changes[i].was;
    for (volatile uint64_t spin = draw() % 100000; spin > 0; spin--) {
    }
  }
  (void)!write(STDOUT_FILENO, kDone, sizeof kDone - 1);
  _exit(0);
}
