"""Recordings of tests/programs/matrix_job.py and what torch said of them, for test_matrix.py."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import samples
import support

JOB = support.REPO / "tests" / "programs" / "matrix_job.py"
HERTZ = 999
RUNS = {
    "dynamo": (
        "warm_up mlp_inference training graph_breaks shapes dynamic_shapes compiled_backward"
        " failing_backend suppressed_errors two_threads reset_and_again"
    ).split(),
    "inductor": "warm_up inductor_inference inductor_training export_and_package".split(),
    "warm": "warm_up inductor_inference inductor_training".split(),
}
# For a torch that keeps one account for all threads.
ONE_THREAD = "one thread"
RUNS[ONE_THREAD] = [scenario for scenario in RUNS["dynamo"] if scenario != "two_threads"]
# The same kernels, made by fewer and shorter runs of the C++ compiler.
FEW_COMPILER_RUNS = {
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "ATEN_CPU_CAPABILITY": "default",
}
# torch's dynamo_timed phases, by the field of CompilationMetrics that each adds to (2.13).
PHASE_OF_FIELD = {
    "dynamo_cumulative_compile_time_us": "entire_frame_compile",
    "backward_cumulative_compile_time_us": "entire_backward_compile",
    "aot_autograd_cumulative_compile_time_us": "backend_compile",
    "inductor_cumulative_compile_time_us": "inductor_compile",
    "inductor_code_gen_cumulative_compile_time_us": "code_gen",
    "pre_grad_pass_time_us": "_recursive_pre_grad_passes",
    "joint_graph_pass_time_us": "_recursive_joint_graph_passes",
    "post_grad_pass_time_us": "_recursive_post_grad_passes",
    "triton_compile_time_us": "async_compile.wait",
    "gc_time_us": "gc",
}

@dataclass
class Compile:
    """One row of torch's metrics, and the rows of the ledger that are its attempts."""

    metrics: dict
    kind: str
    thread: int
    attempts: int
    rows: list

    @property
    def id(self):
        return self.metrics.get("compile_id")

    def wall_s(self, phase=None):
        if phase is None:
            return sum(row["wall_s"] for row in self.rows)
        phases = [p for row in self.rows for p in row["torch_phases"] if p["name"] == phase]
        return sum(p["wall_s"] for p in phases)

    def __str__(self):
        return f"{self.kind} {self.id} {self.metrics.get('co_name')}"


@dataclass
class Run:
    name: str
    directory: Path
    truth: dict
    ledger: dict
    dump: samples.Dump
    done: support.Completed
    compiles: list  # Compile, in the order they began

    def of(self, function, kind="forward"):
        return [
            c
            for c in self.compiles
            if c.kind == kind and c.rows[0]["function"] == function
        ]

    def one(self, function, kind="forward"):
        found = self.of(function, kind)
        assert len(found) == 1, (function, kind, [str(c) for c in self.compiles])
        return found[0]


def kind_of(metrics):
    if "is_forward" in metrics:
        return "forward" if metrics["is_forward"] else "backward"
    return "export"  # strict export and AOTInductor: neither


def pair(truth, ledger):
    """Rows of torch with rows of the ledger; both lists are in order, so no times are needed."""
    left = [row for row in ledger["compiles"] if row["kind"] != "compiled_autograd"]
    functions = {}
    compiles = []
    for metrics in sorted(truth["metrics"], key=lambda m: m["start_time_us"]):
        kind = kind_of(metrics)
        if kind == "forward":
            functions[metrics["compile_id"]] = metrics["co_name"]
        name = functions.get(metrics.get("compile_id")) if kind != "export" else None
        attempts = 1 + len(metrics.get("restart_reasons", ()))
        compiles.append(
            Compile(
                metrics=metrics,
                kind=kind,
                thread=truth["threads"].get(name, truth["pid"]),
                attempts=attempts,
                rows=left[:attempts],
            )
        )
        left = left[attempts:]
    return compiles, left


def record_run(folder, name, python, pair=pair):
    """Attaches by pid before the first compile; `folder` holds the caches of all runs."""
    here = folder / name
    here.mkdir()
    chosen = [word for scenario in RUNS[name] for word in ("--scenario", scenario)]
    target = support.spawn(
        [python, JOB, here / "truth.json", *chosen],
        timeout=180,
        env={"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(here), **FEW_COMPILER_RUNS},
    )
    dynprof = support.Dynprof(here)
    try:
        out = here / "out"
        run = dynprof.start("--pid", target.pid, "-F", HERTZ, "-o", out)
        samples.wait_until_sampling(run)
        target.send("go")
        target.wait_for("^done", timeout=300)
        run.signal(signal.SIGINT)
        done = run.wait()
        assert done.rc == 0, done
        target.send("end")
        assert target.wait() == 0, target.text
    finally:
        dynprof.close()
        target.kill()
    truth = json.loads((here / "truth.json").read_text())
    ledger = json.loads((out / "compiles.json").read_text())
    dump = samples.Dump(out / "recording.dynprof")
    compiles, extra = pair(truth, ledger)
    assert not extra, f"torch has no row for {[(r['trace_id'], r['kind']) for r in extra]}"
    return Run(name, out, truth, ledger, dump, done, compiles)


MOST_OFF_CPU_NS = 10_000_000


def off_cpu_us(run, compile_, phase):
    """How long the thread was off the CPU just after edges of this phase: torch reads its clock a moment
    after the probe does, and a busy machine may run something else in between."""
    offset = run.dump.meta["realtime_offset_ns"]
    begin, end = (compile_.metrics[f"{word}_time_us"] * 1000 - offset for word in ("start", "end"))
    edges = [e for e in run.dump.edges if e.tid == compile_.thread and e.cpu_ns]
    total = 0
    for edge, after in zip(edges, edges[1:], strict=False):
        if edge.name == phase and begin <= edge.time_ns <= end:
            off = (after.time_ns - edge.time_ns) - (after.cpu_ns - edge.cpu_ns)
            total += min(max(off, 0), MOST_OFF_CPU_NS)
    return total / 1e3


def is_near(run, compile_, phase, ours_s, theirs_us, share):
    apart = abs(ours_s * 1e6 - theirs_us) - max(1000, share * theirs_us)
    return apart <= 0 or apart <= off_cpu_us(run, compile_, phase)


def windows(run):
    """(begin, end, Compile) by torch's clock, in ours; the shortest first, since compiles nest."""
    offset = run.dump.meta["realtime_offset_ns"]
    found = [
        (c.metrics["start_time_us"] * 1000 - offset, c.metrics["end_time_us"] * 1000 - offset, c)
        for c in run.compiles
    ]
    return sorted(found, key=lambda window: window[1] - window[0])
