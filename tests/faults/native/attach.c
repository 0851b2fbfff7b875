/* What the targets of the suite "attach" do outside of Python: threads that allocate all the time, a second on the
 * CPU, and system calls across which every register is compared. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- malloc ---- */

static void* allocate(void* argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  void* held[64] = {0};
  for (;;) {
    const unsigned place = (unsigned)rand_r(&seed) % 64;
    free(held[place]);
    /* Now and then beyond the threshold from which malloc maps memory. */
    const size_t size = (size_t)rand_r(&seed) % (place ? 4000 : 400000) + 1;
    held[place] = malloc(size);
    memset(held[place], (int)place, size < 64 ? size : 64);
  }
  return NULL;
}

void allocate_on_threads(int threads) {
  for (int i = 0; i < threads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocate, (void*)(uintptr_t)(i + 1)) == 0)
      pthread_detach(thread);
  }
}

long busy(long milliseconds) {
  const uint64_t until = now_ns() + (uint64_t)milliseconds * 1000000u;
  volatile long sum = 0;
  while (now_ns() < until)
    for (int i = 0; i < 1000; ++i) sum += i;
  return sum;
}

/* Makes system calls while it holds the mutex. */
void hold(pthread_mutex_t* mutex, long milliseconds) {
  const struct timespec moment = {0, 1000000};
  const uint64_t until = now_ns() + (uint64_t)milliseconds * 1000000u;
  pthread_mutex_lock(mutex);
  while (now_ns() < until) nanosleep(&moment, 0);
  pthread_mutex_unlock(mutex);
}

/* ---- gs ---- */

static uint64_t gs_word;

long use_gs(void) { return syscall(SYS_arch_prctl, ARCH_SET_GS, &gs_word); }

long gs_is_kept(void) {
  uint64_t base = 0;
  return syscall(SYS_arch_prctl, ARCH_GET_GS, &base) == 0 && base == (uint64_t)(uintptr_t)&gs_word;
}

/* ---- registers ---- */

struct registers {
  /* rbx rbp r8 r9 r10 r12 r13 r14 r15 rdx rsi rdi rax */
  uint64_t general[13];
  uint64_t below_stack[15]; /* the red zone, but for its last word */
  uint64_t vector[64];      /* ymm0-15; the lower halves alone without AVX */
  uint64_t mxcsr, flags;
};

void call_with(const struct registers* before, struct registers* after, int avx);

__asm__(
    ".text\n"
    ".globl call_with\n"
    ".type call_with, @function\n"
    "call_with:\n"
    "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  push %rdx\n  push %rsi\n"
    ".set n, 0\n"
    ".rept 15\n"
    "  mov 104+8*n(%rdi), %rax\n  mov %rax, -8*(n+1)(%rsp)\n  .set n, n+1\n"
    ".endr\n"
    "  test %edx, %edx\n  jz 1f\n"
    ".set n, 0\n"
    ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  vmovdqu 224+32*\\r(%rdi), %ymm\\r\n"
    ".endr\n"
    "  jmp 2f\n"
    "1:\n"
    ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  movdqu 224+32*\\r(%rdi), %xmm\\r\n"
    ".endr\n"
    "2:\n"
    "  mov 0(%rdi), %rbx\n  mov 8(%rdi), %rbp\n  mov 16(%rdi), %r8\n  mov 24(%rdi), %r9\n"
    "  mov 32(%rdi), %r10\n  mov 40(%rdi), %r12\n  mov 48(%rdi), %r13\n  mov 56(%rdi), %r14\n"
    "  mov 64(%rdi), %r15\n  mov 72(%rdi), %rdx\n  mov 80(%rdi), %rsi\n  mov 96(%rdi), %rax\n"
    "  mov 88(%rdi), %rdi\n"
    "  syscall\n"
    "  mov (%rsp), %rcx\n"
    "  mov %rbx, 0(%rcx)\n  mov %rbp, 8(%rcx)\n  mov %r8, 16(%rcx)\n  mov %r9, 24(%rcx)\n"
    "  mov %r10, 32(%rcx)\n  mov %r12, 40(%rcx)\n  mov %r13, 48(%rcx)\n  mov %r14, 56(%rcx)\n"
    "  mov %r15, 64(%rcx)\n  mov %rdx, 72(%rcx)\n  mov %rsi, 80(%rcx)\n  mov %rdi, 88(%rcx)\n"
    "  mov %rax, 96(%rcx)\n"
    ".set n, 0\n"
    ".rept 15\n"
    "  mov -8*(n+1)(%rsp), %rax\n  mov %rax, 104+8*n(%rcx)\n  .set n, n+1\n"
    ".endr\n"
    "  cmpl $0, 8(%rsp)\n  je 3f\n"
    ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  vmovdqu %ymm\\r, 224+32*\\r(%rcx)\n"
    ".endr\n"
    "  vzeroupper\n"
    "  jmp 4f\n"
    "3:\n"
    ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "  movdqu %xmm\\r, 224+32*\\r(%rcx)\n"
    ".endr\n"
    "4:\n"
    "  stmxcsr 736(%rcx)\n"
    "  pop %rsi\n  pop %rdx\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
    "  ret\n"
    ".size call_with, .-call_with\n");

enum { kRdx = 9, kRsi = 10, kRdi = 11, kRax = 12, kR10 = 4 };

/* System calls for so long; how many of them came back with a register that differs, or a wrong result. */
long wrong_registers(long milliseconds) {
  const uint64_t until = now_ns() + (uint64_t)milliseconds * 1000000u;
  const int avx = __builtin_cpu_supports("avx");
  uint32_t word = 0, mxcsr;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  const struct timespec pause = {0, 200000};
  long wrong = 0;
  for (unsigned round = 0; now_ns() < until; ++round) {
    struct registers before, after;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    for (int i = 0; i < 13; ++i)
      before.general[i] = 0x1111111111111111u * (unsigned)(i + 1) + round;
    for (int i = 0; i < 15; ++i) before.below_stack[i] = 0xabcdef0000000000u + (unsigned)i + round;
    for (int i = 0; i < 64; ++i) before.vector[i] = 0x0123456789abcdefu * (unsigned)(i + 1) + round;
    int64_t expected = 0;
    switch (round % 3) {
      case 0:
        before.general[kRax] = SYS_getpid;
        expected = getpid();
        break;
      case 1:
        before.general[kRax] = SYS_nanosleep;
        before.general[kRdi] = (uint64_t)(uintptr_t)&pause;
        before.general[kRsi] = 0;
        break;
      default:
        before.general[kRax] = SYS_futex;
        before.general[kRdi] = (uint64_t)(uintptr_t)&word;
        before.general[kRsi] = FUTEX_WAIT_PRIVATE;
        before.general[kRdx] = 0;
        before.general[kR10] = (uint64_t)(uintptr_t)&pause;
        expected = -110; /* ETIMEDOUT */
    }
    call_with(&before, &after, avx);
    if ((int64_t)after.general[kRax] != expected) ++wrong;
    after.general[kRax] = before.general[kRax];
    if (memcmp(before.general, after.general, sizeof before.general) != 0 ||
        memcmp(before.below_stack, after.below_stack, sizeof before.below_stack) != 0 ||
        (uint32_t)after.mxcsr != mxcsr)
      ++wrong;
    for (int i = 0; i < 64; ++i)
      if ((avx || i % 4 < 2) && before.vector[i] != after.vector[i]) {
        ++wrong;
        break;
      }
  }
  return wrong;
}
