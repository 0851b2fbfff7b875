"""Children made inside functions that are probed, and a filter on system calls."""

import ctypes
import os
import platform
import struct
import subprocess
import sys

import torch

from cases.common import case, paced, warm_up


class Refused(Exception):
    pass


def forking(x, step, way):
    """A backward that forks; (pid, status) of the child, in the parent. The child leaves at once (0), returns
    through the backward (1), or leaves it by an exception (2), and exits with `way`."""
    child = []

    class Forks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            child.append(os.fork())
            if child[0] == 0 and way == 0:
                os._exit(0)
            if child[0] == 0 and way == 2:
                raise Refused
            return grad

    failed = False
    try:
        step(Forks.apply(x)).backward()
    except Refused:
        failed = True
    if child[0] == 0:
        os._exit(way if failed == (way == 2) else 99)
    return os.waitstatus_to_exitcode(os.waitpid(child[0], 0)[1])


@case
def forks_in_backward(rounds):
    step, x = warm_up()
    statuses = [forking(x, step, number % 3) for number in paced(max(6, rounds // 10), 20)]
    return " ".join(f"{way}:{statuses.count(way)}" for way in sorted(set(statuses)))


@case
def forks_in_compile(rounds):
    """The backend forks; the child goes on compiling, runs what it compiled, and exits."""
    ended = []

    def run():
        children = []

        def backend(graph, inputs):
            children.append(os.fork())
            return graph.forward

        torch._dynamo.reset()
        result = torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.zeros(3)).sum().item()
        if children[0] == 0:
            os._exit(int(result))
        ended.append(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))

    for _ in range(max(2, rounds // 40)):
        run()
    return " ".join(map(str, sorted(set(ended)))) + f" of {len(ended)}"


def spawn():
    """vfork and exec: what subprocess and posix_spawn do here."""
    done = subprocess.run(["/bin/true"], check=False).returncode
    pid = os.posix_spawn("/bin/false", ["false"], os.environ)
    return done, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@case
def spawns_in_backward_and_compile(rounds):
    step, x = warm_up()
    statuses = []

    class Spawns(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            statuses.append(spawn())
            return grad

    def backend(graph, inputs):
        statuses.append(spawn())
        return graph.forward

    for number in paced(max(4, rounds // 10), 20):
        step(Spawns.apply(x)).backward()
        if number % 5 == 0:
            torch._dynamo.reset()
            torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.zeros(3))
            step, x = warm_up()
    return f"{len(statuses)} times {sorted(set(statuses))}"


# ---- seccomp -------------------------------------------------------------------------------------

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
# What Docker's default profile refuses to a container without capabilities (x86-64), and clone3, which it
# answers with ENOSYS.
REFUSED = (
    "acct 163 add_key 248 bpf 321 clock_adjtime 305 clock_settime 227 create_module 174 delete_module 176 "
    "finit_module 313 fsconfig 431 fsmount 432 fsopen 430 fspick 433 get_mempolicy 239 init_module 175 ioperm 173 "
    "iopl 172 kexec_file_load 320 kexec_load 246 keyctl 250 lookup_dcookie 212 mbind 237 mount 165 mount_setattr 442 "
    "move_mount 429 move_pages 279 name_to_handle_at 303 nfsservctl 180 open_by_handle_at 304 open_tree 428 "
    "perf_event_open 298 personality 135 pivot_root 155 quotactl 179 reboot 169 request_key 249 set_mempolicy 238 "
    "setdomainname 171 sethostname 170 setns 308 settimeofday 164 swapoff 168 swapon 167 sysfs 139 umount2 166 "
    "unshare 272 uselib 134 userfaultfd 323 ustat 136 vhangup 153"
)
CLONE3 = 435
LAST_BEFORE_GAP, FIRST_AFTER_GAP, LAST = 334, 424, 462


def seccomp_filter():
    """Classic BPF: system calls that the profile does not know (uretprobe 335, uprobe 336) are refused too."""
    load, equal, above, at_least, give = 0x20, 0x15, 0x25, 0x35, 0x06
    numbers = [int(word) for word in REFUSED.split()[1::2]]
    code = [(load, 0, 0, 0)]
    code += [(equal, 0, 1, CLONE3), (give, 0, 0, ERRNO | ENOSYS)]
    for number in numbers:
        code += [(equal, 0, 1, number), (give, 0, 0, ERRNO | EPERM)]
    code += [(above, 0, 1, LAST), (give, 0, 0, ERRNO | EPERM)]
    code += [
        (at_least, 2, 0, FIRST_AFTER_GAP),
        (above, 0, 1, LAST_BEFORE_GAP),
        (give, 0, 0, ERRNO | EPERM),
    ]
    code += [(give, 0, 0, ALLOW)]
    return code


def enter_seccomp():
    if platform.machine() != "x86_64":
        return
    code = seccomp_filter()
    packed = b"".join(struct.pack("HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    program = Program(len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(
        set_seccomp, mode_filter, ctypes.byref(program), 0, 0
    ):
        sys.exit(f"no seccomp filter: {os.strerror(ctypes.get_errno())}")


@case
def seccomp_as_docker(rounds):
    """The filter is for the rest of the process: this case comes last."""
    step, x = warm_up()
    enter_seccomp()
    for number in paced(rounds):
        step(x).backward()
        if number % (rounds // 4) == 0:
            torch._dynamo.reset()
            step, x = warm_up()
    return f"{forking(x, step, 1)} {spawn()} {x.grad.sum().item():.3f}"
