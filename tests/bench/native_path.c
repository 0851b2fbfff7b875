/* 60 native calls deep, then some 40 us of work: what deep_loop.py --native has below its Python path. */
#define NOINLINE __attribute__((noinline))

static NOINLINE unsigned work(void) {
  unsigned x = 1;
  for (volatile int i = 0; i < 20000; i = i + 1) x = x * 3 + 1;
  return x;
}

NOINLINE unsigned native_path(int depth) {
  unsigned found = depth > 1 ? native_path(depth - 1) : work();
  __asm__ volatile("" : "+r"(found)); /* no tail call */
  return found;
}
