"""Our profile of a compile beside the one TORCH_COMPILE_CPROFILE writes of the same job.

    compare_cprofile.py [--backend inductor|aot_eager] [--top 20]

The same cold compile (cold_compile.py) runs twice, each in a process of its own with caches of its own: once with
TORCH_COMPILE_CPROFILE=1, once bare with dynprof-bpf attached at 999 Hz. Both leave a pstats file of
`_compile_inner` 0/0: torch in its temporary directory, we in DIR/compiles/_compile_inner_0_0.profile.

Compared are shares: cumtime of a function over cumtime of the root, for the top 20 functions by cumtime of torch's
file that are Python functions (ours has no C functions), by file, first line and name. cProfile measures wall time
and we CPU time, so the job is one that waits for nothing (aot_eager), or else what it waits in is left out: each
function's cumtime without time inside the functions of WAITS, on both sides.

How far apart may they be? Ours is a sample: a share p of n samples has the error sigma = sqrt(p (1 - p) / n). cProfile
changes what it measures: it costs something per call, so that functions full of short calls look larger. That is taken
off: a third run counts, exactly, the calls made inside each function (sys.setprofile in torch's own place for
cProfile); a call costs what torch's root took longer than ours, divided by all calls. What is taken off assumes that
all calls cost the same, so half of it, in shares, is allowed as error, and 1 % of the whole on top for two runs that
are never quite alike (files read the first time, memory).

Exit status 0: all are within 3 sigma + allowance. 1: some are not. 2: it could not be run.
"""

import argparse
import json
import math
import os
import pstats
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import support  # noqa: E402

# The cyclic collector runs now here, now there, a tenth of a second each time: in neither run.
WITHOUT_GC = """
import gc, runpy, sys
gc.disable()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
"""
# Counts calls where torch would have cProfile; writes {"file\0line\0function": calls inside it}.
COUNTING = """
import cProfile, json, os, sys
class Counter(cProfile.Profile):
    def runcall(self, function, *arguments, **named):
        inside, active, stack, calls = {}, {}, [], 0
        def hook(frame, event, argument):
            nonlocal calls
            if event == 'call':
                calls += 1
                code = frame.f_code
                depth = active.get(code, 0)
                active[code] = depth + 1
                stack.append((code, calls if depth == 0 else None))
            elif event == 'c_call':
                calls += 1
            elif event == 'return' and stack:
                code, entry = stack.pop()
                active[code] -= 1
                if entry is not None:
                    inside[code] = inside.get(code, 0) + calls - entry
        sys.setprofile(hook)
        try:
            return function(*arguments, **named)
        finally:
            sys.setprofile(None)
            self.inside = inside
    def dump_stats(self, path):
        found = {}
        for code, calls in self.inside.items():
            key = '\\0'.join([code.co_filename, str(code.co_firstlineno), code.co_name])
            found[key] = found.get(key, 0) + calls
        with open(path, 'w') as file:
            json.dump(found, file)
    def create_stats(self):
        self.stats = {('~', 0, 'none'): (0, 0, 0.0, 0.0, {})}
cProfile.Profile = Counter
""" + WITHOUT_GC
JOB = HERE / "cold_compile.py"
HERTZ = 999
PROFILE = "_compile_inner_0_0.profile"
ROOT = "_compile_inner"
# Waiting for g++ and for pool threads: wall time that is no CPU time of the thread.
WAITS = ("run_compile_cmd", "_wait_futures", "check_output")
SIGMAS = 3
LEAST_ALLOWANCE = 0.01
MOST_WAITING = 1.1


def run_job(folder, backend, way):
    """way: "cprofile", "counting" or "ours". The profile, and CPU and wall seconds of the process."""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder), "PYTHONHASHSEED": "0"}
    if way != "ours":
        env["TORCH_COMPILE_CPROFILE"] = "1"
    target = support.spawn(
        [support.venv_python().path, "-c", COUNTING if way == "counting" else WITHOUT_GC, JOB, "--backend", backend],
        timeout=120,
        env=env,
    )
    recorder = None
    try:
        if way == "ours":
            command = [support.BINARY, "record", "-F", HERTZ, "-o", folder / "out", "-p", target.pid]
            recorder = support.Running(command, folder)
            recorder.wait_for_err(r"(?m)^Sampling ", timeout=60)
        # cProfile's clock runs on while others have the CPU: its thread comes before them.
        first = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(target.pid, first, os.sched_param(1))
        target.send("go")
        words = target.wait_for(r"^cpu (\S+) wall (\S+)", timeout=600)
        cpu, wall = float(words[1]), float(words[2])
        target.send("end")
        target.wait()
        if recorder:
            done = recorder.wait()
            if done.rc != 0:
                sys.exit(f"error: dynprof-bpf failed\n{done}")
        path = (folder / "out" / "compiles" if way == "ours" else folder) / PROFILE
        if way == "counting":
            counted = {tuple(key.split("\0")): n for key, n in json.loads(path.read_text()).items()}
            return {(file, int(line), name): n for (file, line, name), n in counted.items()}
        return pstats.Stats(str(path)), cpu, wall
    finally:
        if recorder:
            recorder.kill()
        target.kill()


# ---- pstats --------------------------------------------------------------------------------------


def is_python(function):
    file, line, _ = function
    return line > 0 and file != "~"


def root_of(stats):
    roots = [f for f in stats.stats if f[2] == ROOT and f[0].endswith("convert_frame.py")]
    if len(roots) != 1:
        sys.exit(f"error: no single {ROOT} in the profile: {roots}")
    return roots[0]


def waited(stats):
    """Seconds in WAITS, each inside the functions around it: by callers, shared out as cProfile counts them."""
    inside = {}
    for function, (_, _, _, cumulative, _) in stats.stats.items():
        if function[2] in WAITS:
            inside[function] = cumulative
    return spread(stats, inside)


def spread(stats, amounts):
    """Hands each amount up to all functions around it, in proportion to the time each caller spent there."""
    total = dict(amounts)
    pending = list(amounts.items())
    steps = 0
    while pending and steps < 1_000_000:
        steps += 1
        function, amount = pending.pop()
        callers = stats.stats[function][4]
        # cProfile: (calls, primitive, tottime, cumtime) in this function when called from there.
        weights = {f: times[3] for f, times in callers.items() if f in stats.stats and f != function}
        whole = sum(weights.values())
        for caller, weight in weights.items():
            part = amount * weight / whole if whole > 0 else 0
            if part > 1e-5 * sum(amounts.values()) and caller != function:
                total[caller] = total.get(caller, 0) + part
                pending.append((caller, part))
    return total


def shares(stats, extra):
    """{function: share of the root}, with `extra` seconds taken from each."""
    root = root_of(stats)
    whole = stats.stats[root][3] - extra.get(root, 0)
    return {
        function: min(max((entry[3] - min(extra.get(function, 0), entry[3])) / whole, 0), 1)
        for function, entry in stats.stats.items()
    }, whole


# ---- the table -----------------------------------------------------------------------------------


def short(function):
    file, line, name = function
    return f"{name} ({'/'.join(Path(file).parts[-2:])}:{line})"


def compare(theirs, ours, inside, top):
    lost = waited(theirs)
    real, real_whole = shares(theirs, lost)
    mine, whole = shares(ours, waited(ours))
    samples = whole * HERTZ
    calls = inside[root_of(theirs)]
    per_call = max(real_whole - whole, 0) / calls
    tracing = {f: n * per_call for f, n in inside.items()}
    bare, _ = shares(theirs, {f: lost.get(f, 0) + tracing.get(f, 0) for f in theirs.stats})
    chosen = sorted((f for f in real if is_python(f)), key=lambda f: -theirs.stats[f][3])[:top]
    print(f"torch: {real_whole:.2f} s by cProfile, {calls:,} calls, {per_call * 1e6:.2f} us each for tracing")
    print(f"dynprof-bpf: {whole:.2f} s, {samples:.0f} samples at {HERTZ} Hz")
    columns = ("torch", "bare", "ours", "apart", "sigma", "sigmas")
    print(f"{'function':56} {' '.join(f'{name:>6}' for name in columns)} {'allowed':>7}")
    bad = []
    for function in chosen:
        p, expected = mine.get(function, 0), bare[function]
        sigma = math.sqrt(max(p * (1 - p), 1 / samples) / samples)
        allowed = SIGMAS * sigma + LEAST_ALLOWANCE + abs(real[function] - expected) / 2
        apart = p - expected
        if abs(apart) > allowed:
            bad.append(function)
        print(f"{short(function)[:56]:56} {real[function]:6.1%} {expected:6.1%} {p:6.1%} {apart:+6.1%} {sigma:6.2%} "
              f"{apart / sigma:+6.1f} {allowed:7.1%}{'  NOT' if abs(apart) > allowed else ''}")
    print(f"{len(chosen) - len(bad)} of {len(chosen)} agree")
    return bad


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--backend", default="aot_eager", choices=("aot_eager", "inductor"))
    arguments.add_argument("--top", type=int, default=20)
    options = arguments.parse_args()
    if os.geteuid() != 0:
        print("error: needs root\nhint: sudo make bench", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        made = {}
        for way in ("cprofile", "counting", "ours"):
            (Path(folder) / way).mkdir()
            made[way] = run_job(Path(folder) / way, options.backend, way)
        theirs, cpu, wall = made["cprofile"]
        if options.backend == "aot_eager" and wall > MOST_WAITING * cpu:
            print(f"error: torch's run had the CPU for {cpu:.2f} of {wall:.2f} s: cProfile counts both\n"
                  "hint: on a machine with less to do", file=sys.stderr)
            return 2
        return 1 if compare(theirs, made["ours"][0], made["counting"], options.top) else 0


if __name__ == "__main__":
    sys.exit(main())
