/* Looks like a CPython, by its name and symbols, and is none: what lies there changes all the time.
 *
 *     forged_python SEED MILLISECONDS [OFFSETS]      (run as a copy named python3.11, or the like)
 *
 * OFFSETS is a file with the _Py_DebugOffsets of a real CPython: they are at the start of _PyRuntime, some of them changed.
 * Prints "ready", computes for so long, prints "survived", exits with 0. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { kRuntimeWords = 1 << 16, kWords = 1 << 18 };
/* Words of _Py_DebugOffsets, from 3.13 on. */
enum { kInterpreterId = 7, kInterpreterNext, kThreadsHead };

/* The names that a reader looks for. */
extern uint64_t _PyRuntime[kRuntimeWords], PyCode_Type[64], PyUnicode_Type[64], PyBytes_Type[64],
    PyDict_Type[64], PyLong_Type[64], PyModule_Type[64], PyFrame_Type[64], PyList_Type[64],
    Py_Version;
uint64_t _PyRuntime[kRuntimeWords], PyCode_Type[64], PyUnicode_Type[64], PyBytes_Type[64],
    PyDict_Type[64], PyLong_Type[64], PyModule_Type[64], PyFrame_Type[64], PyList_Type[64];
uint64_t Py_Version = 0x030b07f0;
static uint64_t objects[kWords];
static uint64_t state;

static uint64_t draw(void) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1DULL;
}

static uint64_t value(void) {
  switch (draw() % 8) {
    case 0:
      return 1ULL << 60;
    case 1:
      return (uint64_t)&PyCode_Type[draw() % 8];
    case 2:
      return draw() % 4096;
    case 3:
      return (uint64_t)_PyRuntime + draw() % sizeof _PyRuntime;
    case 4:
      return draw();
    case 5:
      return (uint64_t)getpid(); /* the id of a thread */
    default:
      return (uint64_t)&objects[draw() % kWords]; /* so that one leads to the next, and around */
  }
}

static void fill(uint64_t* words, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) words[i] = value();
}

static uint64_t offsets[1024];
static uint64_t offset_count;

static void read_offsets(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) exit(2);
  offset_count = fread(offsets, sizeof *offsets, sizeof offsets / sizeof *offsets, file);
  fclose(file);
  if (offset_count > 1) Py_Version = offsets[1];
}

/* One interpreter with a thread: without these a reader stops here. */
static void put_interpreter(void) {
  if (offset_count <= kThreadsHead) return;
  _PyRuntime[offset_count] = (uint64_t)objects;
  objects[offsets[kInterpreterId] / 8] = objects[offsets[kInterpreterNext] / 8] = 0;
  uint64_t* thread =
      &objects[kWords / 2]; /* of the versions that have the offsets: prev, next, interp */
  thread[1] = 0;
  thread[2] = (uint64_t)objects;
  objects[offsets[kThreadsHead] / 8] = (uint64_t)thread;
}

/* Up to three of the offsets are other ones, mostly small enough to be believed; the cookie and the version stay. */
static void put_offsets(void) {
  for (uint64_t i = 0; i < offset_count; i++) _PyRuntime[i] = offsets[i];
  if (offset_count <= kThreadsHead) return;
  for (uint64_t changes = draw() % 4; changes > 0; changes--) {
    uint64_t* at = &_PyRuntime[3 + draw() % (offset_count - 3)];
    *at = draw() % 4 ? draw() % 256 / 8 * 8 : value();
  }
}

static long now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  state = strtoull(argv[1], NULL, 10) | 1;
  const long end = now_ms() + atol(argv[2]);
  fill(_PyRuntime, kRuntimeWords);
  fill(objects, kWords);
  if (argc == 4) read_offsets(argv[3]);
  put_offsets();
  puts("ready");
  fflush(stdout);
  while (now_ms() < end) {
    for (int i = 0; i < 20000; i++) {
      const uint64_t at = draw() % 4096;
      if (at >= offset_count) _PyRuntime[at] = value();
      objects[draw() % kWords] = value();
      put_interpreter();
    }
    if (draw() % 64 == 0) put_offsets();
    PyCode_Type[draw() % 64] = value();
    PyUnicode_Type[draw() % 64] = value();
  }
  puts("survived");
  return 0;
}
