/* Looks like a CPython, by its name and symbols, and is none: what lies there changes all the time.
 *
 *     forged_python SEED MILLISECONDS      (run as a copy named python3.11, or the like)
 *
 * Prints "ready", computes for so long, prints "survived", exits with 0. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kRuntimeWords = 1 << 16, kWords = 1 << 18 };

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
    default:
      return (uint64_t)&objects[draw() % kWords]; /* so that one leads to the next, and around */
  }
}

static void fill(uint64_t* words, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) words[i] = value();
}

static long now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  state = strtoull(argv[1], NULL, 10) | 1;
  const long end = now_ms() + atol(argv[2]);
  fill(_PyRuntime, kRuntimeWords);
  fill(objects, kWords);
  puts("ready");
  fflush(stdout);
  while (now_ms() < end) {
    for (int i = 0; i < 20000; i++) {
      _PyRuntime[draw() % 4096] = value();
      objects[draw() % kWords] = value();
    }
    PyCode_Type[draw() % 64] = value();
    PyUnicode_Type[draw() % 64] = value();
  }
  puts("survived");
  return 0;
}
