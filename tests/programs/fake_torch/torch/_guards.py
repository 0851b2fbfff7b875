"""CompileId in the three shapes it has had, CompileContext in its one."""
import contextlib
import threading
import typing

from . import LAYOUT

if LAYOUT == "2.6":

    class CompileId(typing.NamedTuple):
        frame_id: int
        frame_compile_id: int

elif LAYOUT == "2.9":

    class CompileId:
        def __init__(self, *, frame_id, frame_compile_id, compiled_autograd_id=None):
            object.__setattr__(self, "frame_id", frame_id)
            object.__setattr__(self, "frame_compile_id", frame_compile_id)
            object.__setattr__(self, "compiled_autograd_id", compiled_autograd_id)

        def __setattr__(self, name, value):
            raise AttributeError(name)

else:

    class CompileId:
        __slots__ = ("frame_id", "frame_compile_id", "compiled_autograd_id")

        def __init__(self, *, frame_id, frame_compile_id, compiled_autograd_id=None):
            self.frame_id = frame_id
            self.frame_compile_id = frame_compile_id
            self.compiled_autograd_id = compiled_autograd_id


class CompileContext:
    def __init__(self, compile_id):
        self.compile_id = compile_id
        self.attempt = 0
        self.shape_env_guards = []


_TLS = threading.local()


@contextlib.contextmanager
def compile_context(context):
    outer = getattr(_TLS, "compile_context", None)
    _TLS.compile_context = context
    try:
        yield
    finally:
        _TLS.compile_context = outer
