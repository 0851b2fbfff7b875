/* Control flow that does not return in the order of its calls, for the targets in tests/faults/cases.
 * Called through ctypes; a callback runs Python, and with it functions of torch that are probed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

typedef void (*callback)(int);

/* ---- makecontext, swapcontext ------------------------------------------------------------------- */

enum { kStackBytes = 8 << 20 };

static __thread ucontext_t caller_context, own_context;
static __thread callback context_callback;
static __thread int context_rounds;

static void context_main(void) {
  for (int i = 0; i < context_rounds; i++) {
    context_callback(i);
    swapcontext(&own_context, &caller_context);
  }
}

/* Calls back `rounds` times on a stack of its own, and returns to the caller's stack after each. May be
 * called from the callback of another call: the contexts of the outer call are kept. */
int run_on_context(callback function, int rounds) {
  ucontext_t outer_caller = caller_context, outer_own = own_context;
  callback outer_callback = context_callback;
  int outer_rounds = context_rounds;
  void* stack = mmap(NULL, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) return -1;
  context_callback = function;
  context_rounds = rounds;
  getcontext(&own_context);
  own_context.uc_stack.ss_sp = stack;
  own_context.uc_stack.ss_size = kStackBytes;
  own_context.uc_link = &caller_context;
  makecontext(&own_context, context_main, 0);
  for (int i = 0; i < rounds + 1; i++) swapcontext(&caller_context, &own_context);
  munmap(stack, kStackBytes);
  caller_context = outer_caller;
  own_context = outer_own;
  context_callback = outer_callback;
  context_rounds = outer_rounds;
  return rounds;
}

/* ---- longjmp ------------------------------------------------------------------------------------ */

static __attribute__((noinline)) void descend(jmp_buf target, int depth) {
  volatile char room[512];
  memset((void*)room, depth, sizeof room);
  if (depth == 0) longjmp(target, 1);
  if (room[1] == depth) descend(target, depth - 1);
  room[0]++;
}

/* Jumps out of `depth` frames of C, beneath whatever called it. */
int jump_beneath(volatile int depth) {
  jmp_buf target;
  if (setjmp(target)) return depth;
  descend(target, depth);
  return -1;
}

static __thread jmp_buf over_target;

/* To be called from Python inside `function`: leaves every frame since jump_over's thread began. */
void jump_out(void) { longjmp(over_target, 1); }

struct over {
  callback function;
  void (*release_gil)(void);
  int jumped;
};

static void* over_main(void* argument) {
  struct over* over = argument;
  if (setjmp(over_target) == 0) {
    over->function(0);
  } else {
    over->jumped = 1;
    over->release_gil(); /* the frames that would have released it are gone */
  }
  return NULL;
}

/* Runs `function` on a new thread, which may leave it by jump_out() with the GIL held. */
int jump_over(callback function, void (*release_gil)(void)) {
  struct over over = {function, release_gil, 0};
  pthread_t thread;
  if (pthread_create(&thread, NULL, over_main, &over)) return -1;
  pthread_join(thread, NULL);
  return over.jumped;
}

/* ---- signals on a stack of their own ------------------------------------------------------------- */

static volatile sig_atomic_t signals_handled;

static __attribute__((noinline)) int touch(int depth) {
  volatile char room[1024];
  memset((void*)room, depth, sizeof room);
  return depth == 0 ? room[0] : touch(depth - 1) + room[1];
}

static void on_signal(int number) {
  (void)number;
  touch(8);
  signals_handled++;
}

/* SIGPROF every `microseconds`, handled on an alternate stack of this thread where it has one. */
int begin_signals(int microseconds) {
  static char stack[64 << 10];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
  struct itimerval often = {{0, microseconds}, {0, microseconds}};
  if (sigaltstack(&alternate, NULL) || sigaction(SIGPROF, &action, NULL)) return -1;
  return setitimer(ITIMER_PROF, &often, NULL);
}

int end_signals(void) {
  struct itimerval never = {{0, 0}, {0, 0}};
  stack_t none = {.ss_flags = SS_DISABLE};
  setitimer(ITIMER_PROF, &never, NULL);
  sigaltstack(&none, NULL);
  return signals_handled > 0;
}

/* ---- threads that do not return ------------------------------------------------------------------ */

static __attribute__((noinline)) void leave(int depth) {
  volatile char room[256];
  memset((void*)room, depth, sizeof room);
  if (depth == 0) pthread_exit((void*)7);
  if (room[1] == depth) leave(depth - 1);
  room[0]++;
}

static int cancel_pipe[2];

static void* ending_main(void* argument) {
  callback function = ((callback*)argument)[0];
  function(0);
  leave(20);
  return NULL;
}

static void* cancelled_main(void* argument) {
  callback function = ((callback*)argument)[0];
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  char byte = 0;
  function(0); /* not cancelled here: CPython would keep its lock for good */
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  while (1) (void)!read(cancel_pipe[0], &byte, 1); /* where it is cancelled */
  return NULL;
}

/* A thread that calls back and then ends by pthread_exit (0) or cancellation (1): its result is right. */
int run_and_end(callback function, int cancelled) {
  pthread_t thread;
  void* result = NULL;
  if (cancelled && pipe(cancel_pipe)) return -1;
  if (pthread_create(&thread, NULL, cancelled ? cancelled_main : ending_main, &function)) return -1;
  if (cancelled) pthread_cancel(thread);
  pthread_join(thread, &result);
  if (cancelled) {
    close(cancel_pipe[0]);
    close(cancel_pipe[1]);
  }
  return result == (cancelled ? PTHREAD_CANCELED : (void*)7);
}
