"""What torch remembers of its compiles, in the shapes it has had. 2.6 had fewer fields of a compile,
few enough for CPython to keep them outside a dict of their own."""
import collections
import contextlib
import dataclasses
import threading
import time

from .. import LAYOUT

FIELDS = {
    "compile_id": None,
    "co_name": None,
    "co_filename": None,
    "co_firstlineno": None,
    "guard_count": None,
    "fail_type": None,
    "fail_reason": None,
    "restart_reasons": None,
    "has_guarded_code": None,
    "is_forward": None,
    "start_time_us": None,
    "duration_us": None,
    "dynamo_cumulative_compile_time_us": None,
    "aot_autograd_cumulative_compile_time_us": None,
    "inductor_cumulative_compile_time_us": None,
    "backward_cumulative_compile_time_us": None,
}
if LAYOUT != "2.6":
    FIELDS.update(
        end_time_us=None,
        recompile_reason=None,
        stack_trace=None,
        feature_usage=None,
        is_runtime=False,
        inductor_fx_local_cache_hit_count=0,
        inductor_fx_local_cache_miss_count=0,
        inductor_fx_remote_cache_hit_count=0,
        inductor_fx_remote_cache_miss_count=0,
        aotautograd_local_cache_hit_count=0,
        aotautograd_local_cache_miss_count=0,
        aotautograd_remote_cache_hit_count=0,
        aotautograd_remote_cache_miss_count=0,
        dynamo_config=None,
        guard_latency_us=None,
    )
if LAYOUT == "2.13":
    FIELDS.update({f"field_{i}": i for i in range(60)}, pytorch_version=None)

CompilationMetrics = dataclasses.make_dataclass(
    "CompilationMetrics", [(name, object, value) for name, value in FIELDS.items()]
)


def metrics(**values):
    """A row of the fields that this version has."""
    return CompilationMetrics(**{k: v for k, v in values.items() if k in FIELDS})


_compilation_metrics = collections.deque(maxlen=64)
compilation_time_metrics = {}
graph_break_reasons = []
counters = collections.defaultdict(collections.Counter)


class ChromiumEventLogger:
    def __init__(self):
        self.tls = threading.local()

    def get_stack(self):
        if not hasattr(self.tls, "stack"):
            self.tls.stack = []
        return self.tls.stack


CHROMIUM_EVENT_LOG = None


def get_chromium_event_logger():
    global CHROMIUM_EVENT_LOG
    if CHROMIUM_EVENT_LOG is None:
        CHROMIUM_EVENT_LOG = ChromiumEventLogger()
    return CHROMIUM_EVENT_LOG


@contextlib.contextmanager
def dynamo_timed(key, phase_name=None):
    event_name = phase_name or key
    log = get_chromium_event_logger()
    start_ns = time.time_ns()
    log.get_stack().append(event_name)
    try:
        yield
    finally:
        assert time.time_ns() >= start_ns
        log.get_stack().pop()
