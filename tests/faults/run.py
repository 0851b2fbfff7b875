#!/usr/bin/env python3
"""The fault suites, as root: `make faults`, or

    .venv/bin/python tests/faults/run.py [awkward|inject|hostile|attach ...] [--short] [--only WORD] [--seconds N]
                                         [--times N] [--seed N] [--list]

Without a suite all of them run, in their long form: awkward targets with 10,000 exceptions and switches, 1,000
injected faults, an hour of hostile targets, 200 loadings of the GPU library into each kind of target. Prints a table
(target, runs, harmed, failed) and, last,
`N passed, N failed`. "harmed": the target's output or end differs from a run without a profiler, or it hangs.
"failed": anything else, with the reason below the table.
"""

import argparse
import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import attach  # noqa: E402
import awkward  # noqa: E402
import hostile  # noqa: E402
import inject  # noqa: E402
import pool  # noqa: E402
import specials  # noqa: E402
import support  # noqa: E402
from results import HEADER, Row, closing  # noqa: E402

SUITES = ("awkward", "inject", "attach", "hostile")


def rows_of(suite, options, folder, stack):
    """(name, function that makes the row) of each target of a suite."""
    if suite == "awkward":
        table = awkward.short_table() if options.short else awkward.long_table()
        for target in table:
            yield target.name, lambda target=target: awkward.run(
                target, folder / target.name.replace(" ", "-")
            )
    elif suite == "inject":
        lab = pool.Lab(folder / "lab")
        stack.callback(lab.close)
        times = options.times or (40 if options.short else 1000)
        for name in inject.KINDS:
            count = inject.share(name, times)
            yield f"inject: {name}", lambda name=name, count=count: inject.run(
                name, count, lab, options.seed
            )
        for name, function in specials.table(options.short):
            yield f"fault: {name}", lambda name=name, function=function: specials.run(
                name, function, lab
            )
    elif suite == "attach":
        times = options.times or (3 if options.short else 200)
        for python in attach.pythons():
            for kind in (kind for kind in attach.KINDS if attach.is_for(python, kind)):
                yield f"attach: {python} {kind}", lambda python=python, kind=kind: attach.run(
                    python, kind, times, folder / "attach", options.seed
                )
            yield f"attach: {python} killed", lambda python=python: attach.run_kills(
                python, max(1, times // 2), folder / "attach", options.seed
            )
    else:
        seconds = options.seconds or (60 if options.short else 3600)
        for kind in hostile.KINDS:
            yield f"hostile: {kind}", lambda kind=kind: hostile.run(
                kind, seconds / len(hostile.KINDS), folder, seed=options.seed
            )


def guarded(name, function):
    """A tool that fails makes a row that says so, and the others run."""
    try:
        return function()
    except Exception:
        row = Row(name)
        row.fail(traceback.format_exc())
        return row


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("suites", nargs="*", choices=(*SUITES, []))
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="", help="targets with this in their name")
    parser.add_argument("--seconds", type=float, help="of hostile targets")
    parser.add_argument("--times", type=int, help="injected faults")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--list", action="store_true")
    parser.add_argument(
        "--keep", action="store_true", help="leave the files of the runs where they are"
    )
    options = parser.parse_args()
    if reason := support.why_no_bpf():
        print(reason)
        return 77
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # So that targets, mounts and control groups do not outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=support.REPO / "build"))
    os.chmod(folder, 0o755)
    rows = []
    print(HEADER, flush=True)
    stack = contextlib.ExitStack()
    try:
        for suite in options.suites or SUITES:
            for name, function in rows_of(suite, options, folder, stack):
                if options.only not in name:
                    continue
                if options.list:
                    print(name)
                    continue
                row = guarded(name, function)
                rows.append(row)
                print(row, flush=True)
                for line in row.details():
                    print("   ", line.replace("\n", "\n      "), flush=True)
    finally:
        stack.close()
        if options.keep:
            print(f"files: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(closing(rows))
    return 0 if rows and all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
