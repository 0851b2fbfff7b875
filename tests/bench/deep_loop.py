"""The loop whose slowdown is measured: a path of 60 distinct functions, walked down and up again.

    deep_loop.py SHARED [--torch] [--native LIBRARY]

SHARED is a file of two 8-byte words: passes done (written), cProfile wanted (read). With LIBRARY (native_path.c)
the path goes on for as many native calls, and the work is down there.
"""

import cProfile
import ctypes
import mmap
import os
import sys

DEPTH = 60


def make_loop(bottom=None):
    # About 4 us on the way down and up, about 40 us at the bottom: most samples see the whole path.
    source = ["def level_59():\n    x = 1\n    for i in range(800):\n        x = x * 3 & 255\n"]
    for level in range(DEPTH - 2, -1, -1):
        source.append(f"def level_{level:02d}():\n    level_{level + 1:02d}()\n")
    if bottom:
        source[0] = "def level_59():\n    bottom(60)\n"
    namespace = {"bottom": bottom}
    exec(compile("\n".join(source), "<deep loop>", "exec"), namespace)
    return namespace["level_00"]


def main():
    if "--torch" in sys.argv:
        import torch  # noqa: F401
        import torch._inductor.compile_fx  # noqa: F401
    with open(sys.argv[1], "r+b") as file:
        shared = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")
    bottom = None
    if "--native" in sys.argv:
        bottom = ctypes.CDLL(sys.argv[sys.argv.index("--native") + 1]).native_path
    top, profile = make_loop(bottom), None
    print("ready", os.getpid(), flush=True)
    while True:
        if bool(shared[1]) != (profile is not None):
            if profile is None:
                profile = cProfile.Profile()
                profile.enable()
            else:
                profile.disable()
                profile = None
        top()
        shared[0] += 1


main()
