"""The frames of a forward compile. 2.6 keeps the attempt in an inner function of _compile, later
versions in compile_frame."""
import collections
import functools
import itertools

from .. import LAYOUT

FRAME_COUNTER = 0
FRAME_COMPILE_COUNTER = collections.Counter()


def wrapped(function):
    """As torch's own decorators do: the module then holds the wrapper."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


if LAYOUT == "2.6":

    def _compile(code, globals, locals, hold, *, compile_id, attempts=1):
        def transform():
            return code, compile_id

        def compile_inner(code):
            return _compile_inner(code)

        def _compile_inner(code):
            last_attempt_start_time = None
            for attempt in itertools.count():
                last_attempt_start_time = compile_id
                if attempt + 1 == attempts:
                    return hold(), transform, last_attempt_start_time
                getattr(hold, "given_up", id)(attempt)

        return compile_inner(code)

else:

    @wrapped
    def compile_frame(code, hold, attempts, restart_reasons=()):
        def transform():
            return restart_reasons

        last_attempt_start_time = None
        for attempt in itertools.count():
            last_attempt_start_time = attempt
            if attempt + 1 == attempts:
                return hold(), transform, last_attempt_start_time
            getattr(hold, "given_up", id)(attempt)

    def _compile(code, globals, locals, hold, *, compile_id, attempts=1):
        names = [name for name in locals]

        def compile_inner(code):
            return compile_frame(code, hold, attempts), compile_id

        return compile_inner(code), names
