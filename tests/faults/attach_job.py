"""A target of the suite "attach".

    attach_job.py KIND FD

What its main thread does, until a byte comes from FD (`input`: until a line comes from stdin):
  malloc     allocates, beside four threads that do so without a pause
  gc         makes cycles and collects them
  lock       waits for a lock that it gets three times a second
  join       waits for a lock until the end, beside a thread that computes
  locked     holds the mutex of the GIL for its first second, beside such a thread
  c          is in C for a second, without the GIL
  gs         uses the register GS
  registers  makes system calls across which every register is compared
  input      waits in input()
  signals    computes and sleeps, interrupted by a signal 500 times a second
  fork       forks children that compute and exit
Prints `ready`, and in the end `done` with the number of wrong results; exits with 3.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

NATIVE = Path(os.environ["FAULTS_NATIVE"]) / "attach.so"


class Target:
    def __init__(self, kind, stop):
        self.native = ctypes.CDLL(NATIVE)
        self.native.busy.restype = ctypes.c_long
        self.native.wrong_registers.restype = ctypes.c_long
        self.native.use_gs.restype = self.native.gs_is_kept.restype = ctypes.c_long
        self.ended = False
        self.wrong = 0
        self.work = getattr(self, f"work_{kind}")
        getattr(self, f"begin_{kind}", lambda: None)()
        threading.Thread(target=self.await_end, args=(stop,), daemon=True).start()

    def await_end(self, stop):
        os.read(stop, 1)
        self.ended = True
        with contextlib.suppress(AttributeError):
            self.end_lock.release()

    def compute(self):
        self.wrong += sum(range(5000)) != 12497500
        table = {str(number): [number] * 3 for number in range(200)}
        self.wrong += json.loads(json.dumps(table)) != table
        self.wrong += abs(sum(0.1 for _ in range(1000)) - 100) > 1e-6

    def begin_malloc(self):
        self.native.allocate_on_threads(4)

    def work_malloc(self):
        self.compute()

    def work_gc(self):
        for _ in range(200):
            cycle = [{}]
            cycle[0]["again"] = cycle
        gc.collect()
        self.compute()

    def begin_lock(self):
        self.lock = threading.Lock()
        self.lock.acquire()

        def release():
            while True:
                time.sleep(0.3)
                if self.lock.locked():
                    self.lock.release()

        threading.Thread(target=release, daemon=True).start()

    def work_lock(self):
        self.lock.acquire()
        self.wrong += not self.lock.locked()

    def begin_computing(self):
        def compute():
            while True:
                sum(range(1000))

        threading.Thread(target=compute, daemon=True).start()

    def begin_join(self):
        self.end_lock = threading.Lock()
        self.end_lock.acquire()
        self.begin_computing()

    def work_join(self):
        self.end_lock.acquire()

    def begin_locked(self):
        """As a thread does that releases the GIL. _Py_DebugOffsets tells where the interpreter has its GIL."""
        self.begin_computing()
        python = ctypes.pythonapi
        runtime = ctypes.addressof(ctypes.c_char.in_dll(python, "_PyRuntime"))
        number = 14 if sys.version_info < (3, 14) else 15
        offset = ctypes.c_uint64.from_address(runtime + number * 8).value
        python.PyInterpreterState_Get.restype = ctypes.c_void_p
        gil = ctypes.c_uint64.from_address(python.PyInterpreterState_Get() + offset).value
        self.mutex = ctypes.c_void_p(gil + 0x50)
        self.held = False

    def work_locked(self):
        if not self.held:  # not before all threads have been started
            self.native.hold(self.mutex, 1000)
            self.held = True
        time.sleep(0.001)

    def work_c(self):
        self.native.busy(1000)
        self.compute()

    def begin_gs(self):
        self.wrong += self.native.use_gs() != 0

    def work_gs(self):
        self.compute()
        self.wrong += not self.native.gs_is_kept()

    def work_registers(self):
        self.wrong += self.native.wrong_registers(20)
        self.compute()

    def work_input(self):
        self.wrong += input() != "end"
        self.ended = True

    def begin_signals(self):
        self.signals = 0

        def count(number, frame):
            self.signals += 1

        signal.signal(signal.SIGALRM, count)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

    def work_signals(self):
        self.compute()
        time.sleep(0.003)
        before = self.signals
        deadline = time.monotonic() + 5
        while self.signals == before and time.monotonic() < deadline:
            pass
        self.wrong += self.signals == before

    def work_fork(self):
        child = os.fork()
        if child == 0:
            os._exit(sum(range(2000)) == 1999000)
        self.wrong += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 1


def main():
    target = Target(sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    while not target.ended:
        target.work()
    print("done", target.wrong, "wrong", flush=True)
    os._exit(3)


if __name__ == "__main__":
    main()
