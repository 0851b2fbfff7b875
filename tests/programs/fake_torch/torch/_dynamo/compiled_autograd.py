"""A phase that one function begins and another one ends, by frames that have nothing in common."""
import time

from . import utils


class AutogradCompilerInstance:
    def begin_capture(self):
        self.start_time_ns = time.time_ns()
        utils.get_chromium_event_logger().get_stack().append("compiled_autograd")

    def end_capture(self):
        assert time.time_ns() >= self.start_time_ns
        utils.get_chromium_event_logger().get_stack().pop()
