/* Says that it is a CPython 3.16 alpha, by its name (run as a copy named python3.16) and by the start of its
 * _PyRuntime, as 3.13 and later describe themselves. Prints "ready", then stands still. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

extern struct runtime {
  char cookie[8];
  uint64_t version;
  uint64_t more[510];
} _PyRuntime;
struct runtime _PyRuntime = {{'x', 'd', 'e', 'b', 'u', 'g', 'p', 'y'}, 0x031000a1, {0}};

int main(void) {
  puts("ready");
  fflush(stdout);
  pause();
  return _PyRuntime.version == 0;
}
