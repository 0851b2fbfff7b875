"""Other tools at work in the same process, and plain work for tools that come from outside."""

import faulthandler
import os
import sys
import tempfile
import threading
import time

import torch

from cases.common import case, paced, warm_up
from cases.exceptions import raise_in_backward


def dump_while_asleep(file):
    """A timer's dump of this thread's stack. It must not run on while frames change: CPython's own dump may
    then crash the process."""
    faulthandler.dump_traceback_later(0.001, file=file)
    time.sleep(0.003)
    faulthandler.cancel_dump_traceback_later()


@case
def profilers_inside(rounds):
    """torch.profiler, faulthandler timers and sys.setprofile at once, with exceptions through all of it."""
    step, x = warm_up()
    calls, caught = [0], 0

    def note(frame, event, argument):
        calls[0] += 1

    with tempfile.TemporaryFile() as nowhere:
        sys.setprofile(note)
        threading.setprofile(note)
        try:
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], with_stack=False
            ) as profile:
                for number in paced(rounds):
                    dump_while_asleep(nowhere)
                    caught += raise_in_backward(step, x, number)
                torch._dynamo.reset()
                step, x = warm_up()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    seen = {event.key for event in profile.key_averages()}
    return (
        f"{caught} exceptions, {calls[0] > 0}, backward seen {'RaisesInBackwardBackward' in seen}"
    )


@case
def plain_work(rounds):
    """Compiles, runs and exceptions, for tools that come and leave from outside."""
    step, x = warm_up()
    caught = 0
    for number in paced(rounds):
        caught += raise_in_backward(step, x, number)
        if number % 25 == 0:
            torch._dynamo.reset()
            step, x = warm_up()
    return f"{caught} exceptions {os.getpid() > 0}"
