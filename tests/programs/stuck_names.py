"""Runs a function whose name is in a page that never arrives when another process reads it: userfaultfd without an
answer. Prints "ready", then computes; exits with 77 where it may not use userfaultfd."""

import ctypes
import fcntl
import struct
import sys
import types

PAGE = 4096
SYS_USERFAULTFD = 323
UFFDIO_API = 0xC018AA3F
UFFDIO_REGISTER = 0xC020AA00
MISSING = 1
O_CLOEXEC = 0o2000000
MADV_DONTNEED = 4


def work():
    total = 0
    for number in range(10000):
        total += number * number
    return total


def block(address):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SYS_USERFAULTFD, O_CLOEXEC)
    if fd < 0:
        sys.exit(77)
    fcntl.ioctl(fd, UFFDIO_API, struct.pack("<QQQ", 0xAA, 0, 0))
    fcntl.ioctl(fd, UFFDIO_REGISTER, struct.pack("<QQQQ", address, PAGE, MISSING, 0))
    libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), MADV_DONTNEED)


def main():
    # Large enough for a mapping of its own, whose first page is the string's head and nothing else's.
    name = "stuck_" + "x" * 1_000_000
    changes = {"co_name": name}
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = name
    stuck = types.FunctionType(work.__code__.replace(**changes), globals())
    # Interning may have made a copy of it.
    for text in {id(stuck.__code__.co_name), id(name)}:
        block(text // PAGE * PAGE)
    print("ready", flush=True)
    while True:
        stuck()


main()
