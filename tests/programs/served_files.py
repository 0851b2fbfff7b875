"""A FUSE file system with one file, as its owner's program serves it: until a file HANG appears, then no request is
answered any more.

    served_files.py MOUNT_POINT UID FILE HANG     (as root)

Prints "ready" when it is mounted; unmounts when its standard input ends."""

import ctypes
import errno
import os
import select
import stat
import struct
import sys

ROOT, CONTENT = 1, 2  # node ids
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 18, 25, 26
STATFS, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 17, 27, 29, 36, 42
MNT_DETACH = 2
NO_ANSWER = (FORGET, INTERRUPT, BATCH_FORGET)


def attributes(node, uid, size):
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o755
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, uid, uid, 0, 4096, 0)


def answer(request, opcode, node, uid, content):
    """The body, or a negative errno."""
    if opcode == INIT:
        return struct.pack("<4I2H2I2HI7I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, 0, *[0] * 7)
    if opcode == LOOKUP:
        if request[40:].rstrip(b"\0") != b"library.so":
            return -errno.ENOENT
        return struct.pack("<4Q2I", CONTENT, 0, 1, 1, 0, 0) + attributes(CONTENT, uid, len(content))
    if opcode == GETATTR:
        return struct.pack("<Q2I", 1, 0, 0) + attributes(node, uid, len(content))
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<Q2I", 0, 0, 0)
    if opcode == READ:
        offset, size = struct.unpack_from("<QI", request, 48)
        return content[offset : offset + size]
    if opcode == STATFS:
        return bytes(80)
    if opcode in (FLUSH, RELEASE, RELEASEDIR):
        return b""
    return -errno.ENOSYS


def main():
    mount_point, uid, path, hang = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    with open(path, "rb") as file:
        content = file.read()
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={uid},group_id={uid},allow_other"
    if libc.mount(b"served", mount_point.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    print("ready", flush=True)
    try:
        while True:
            ready, _, _ = select.select([device, 0], [], [])
            if 0 in ready:
                break
            if os.path.exists(hang):
                select.select([0], [], [])
                break
            request = os.read(device, 1 << 17)
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            if opcode in NO_ANSWER:
                continue
            body = answer(request, opcode, node, uid, content)
            failure, body = (body, b"") if isinstance(body, int) else (0, body)
            os.write(device, struct.pack("<IiQ", 16 + len(body), failure, unique) + body)
    finally:
        libc.umount2(mount_point.encode(), MNT_DETACH)
        os.close(device)


main()
