"""What known_stacks.py writes down: stretches of time in which a thread's stack was this one."""

import threading


def function_name(code):
    """What a profiler should call it: the qualified name, where this version has one."""
    return getattr(code, "co_qualname", code.co_name)


def stack_of(frame):
    """[[function, file, line], ...], root first. Holds no frame afterwards."""
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append([function_name(code), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    stack.reverse()
    return stack


class Log:
    def __init__(self, seconds):
        self.seconds = seconds
        self.entries = []

    def add(self, phase, stack, begin, end, cpu_ns, leaf_lines):
        entry = {
            "phase": phase,
            "tid": threading.get_native_id(),
            "begin": begin,
            "end": end,
            "cpu_ns": cpu_ns,
            "leaf_lines": leaf_lines,
            "stack": stack,
        }
        self.entries.append(entry)
