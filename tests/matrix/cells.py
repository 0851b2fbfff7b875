"""What one recording of tests/programs/matrix_job.py is worth beside torch's own account of the job: a cell
of the compatibility table for each thing that is compared.

A cell is "exact", or says in a few words what differs and how often; "-" is what that torch does not note.
No release is named here: what its rows do not have is not compared.
"""

import collections

import matrix_run
import samples

WALL_SHARE, WALL_US = 0.01, 2000


def outcome(good, total, wrong=""):
    if not total:
        return "-"
    return "exact" if good == total else f"{good} of {total}{': ' + wrong if wrong else ''}"


def judged(pairs):
    """Of (what, ours, torch's) those that agree, and one that does not."""
    pairs = list(pairs)
    wrong = [pair for pair in pairs if pair[1] != pair[2]]
    example = "e.g. {}: {} where torch says {}".format(*wrong[0]) if wrong else ""
    return outcome(len(pairs) - len(wrong), len(pairs), example)


def pair(truth, ledger):
    """As matrix_run.pair, but by trace id: a release whose restarts are not all seen has fewer rows than attempts."""
    groups = collections.defaultdict(list)  # of attempts, in order: a trace id comes again after a reset
    for row in ledger["compiles"]:
        if row["kind"] == "compiled_autograd":
            continue
        key = row["kind"] if row["kind"] == "export" else (row["kind"], row["trace_id"])
        if row["attempt"] == 0 or not groups[key]:
            groups[key].append([])
        groups[key][-1].append(row)
    compiles = []
    for metrics in sorted(truth["metrics"], key=lambda m: m["start_time_us"]):
        kind = matrix_run.kind_of(metrics)
        found = groups[kind if kind == "export" else (kind, metrics.get("compile_id"))]
        compiles.append(
            matrix_run.Compile(
                metrics=metrics,
                kind=kind,
                thread=found[0][0]["thread"] if found else truth["pid"],
                attempts=1 + len(metrics.get("restart_reasons", ())),
                rows=found.pop(0) if found else [],
            )
        )
    return compiles, [row for left in groups.values() for group in left for row in group]


def ids(run):
    """Every compile of torch's is in the ledger under its id and kind. (One that torch has not fails the row.)"""
    return judged((str(compile_), bool(compile_.rows), True) for compile_ in run.compiles)


def attempts(run):
    return judged((str(compile_), len(compile_.rows), compile_.attempts) for compile_ in run.compiles if compile_.rows)


def functions(run):
    return judged(
        (str(compile_), compile_.rows[0]["function"], compile_.metrics["co_name"])
        for compile_ in run.compiles
        if compile_.kind == "forward" and compile_.metrics.get("co_name") and compile_.rows
    )


# What torch notes of a compile, and the phase that it is the time of. The first that there is: in torch 2.6 duration_us
# is of something wider.
DURATIONS = {
    "forward": [("dynamo_cumulative_compile_time_us", "entire_frame_compile"), ("duration_us", "entire_frame_compile")],
    "backward": [
        ("backward_cumulative_compile_time_us", "entire_backward_compile"),
        ("duration_us", "entire_backward_compile"),
    ],
    "export": [],
}


def wall_of(compile_):
    """(torch's us, ours, our phase)"""
    for field, phase in DURATIONS[compile_.kind]:
        if compile_.metrics.get(field):
            return compile_.metrics[field], compile_.wall_s(phase) * 1e6, phase
    return compile_.metrics["end_time_us"] - compile_.metrics["start_time_us"], compile_.wall_s() * 1e6, None


def walls(run):
    """Of each compile within 1 % or 2 ms, or what the thread was off the CPU at the edges."""
    good, total, worst = 0, 0, (0, "")
    for compile_ in run.compiles:
        if not compile_.rows:
            continue
        theirs, ours, phase = wall_of(compile_)
        total += 1
        apart = abs(ours - theirs)
        if apart <= max(WALL_US, WALL_SHARE * theirs, matrix_run.off_cpu_us(run, compile_, phase)):
            good += 1
        elif apart > worst[0]:
            worst = apart, f"{compile_} {ours / 1e3:.1f} ms where torch says {theirs / 1e3:.1f}"
    return outcome(good, total, worst[1])


def marked_exact(run):
    """Attempts whose begin and end come from torch's own calls of its clock, not from samples."""
    rows = run.ledger["compiles"]
    return outcome(sum(row["exact"] and row["complete"] for row in rows), len(rows))


def reasons(run):
    return judged(
        (str(compile_), row["recompile_reason"], compile_.metrics.get("recompile_reason"))
        for compile_ in run.compiles
        for row in compile_.rows
        if row["recompile_reason"] or compile_.metrics.get("recompile_reason")
    )


def failures(run):
    return judged(
        (
            str(compile_),
            compile_.rows[-1]["failed"] if compile_.rows else None,
            f"{compile_.metrics['fail_type']}: {compile_.metrics['fail_reason']}",
        )
        for compile_ in run.compiles
        if "fail_type" in compile_.metrics
    )


def graph_breaks(run):
    """Reasons and lines, by the compile that torch had open."""
    theirs = collections.Counter((b["id"], b["reason"], tuple(b["stack"][-1][:2])) for b in run.truth["breaks"])
    ours = collections.Counter(
        (compile_.id, b["reason"], (b["file"], b["line"]))
        for compile_ in run.compiles
        for b in (compile_.rows[-1]["graph_breaks"] if compile_.rows else ())
    )
    wrong = list((theirs - ours) + (ours - theirs))
    return outcome((theirs & ours).total(), (theirs | ours).total(), f"e.g. {wrong[0]}" if wrong else "")


def attribution(run):
    """Samples by torch's thread-locals and by their frames: those that name different compiles."""
    agreement = run.ledger["agreement"]
    if not agreement["both"]:
        return "no sample is known both ways"
    differ = agreement["differ"]
    return "exact" if not differ else f"{differ} of {agreement['both']} samples differ"


def samples_inside(run):
    """Samples inside a compile, by torch's clock, that are not said to be of it."""
    offset = run.dump.meta["realtime_offset_ns"]
    threads = samples.ByThread(run.dump.of_pid(run.truth["pid"]))
    seen, wrong, total = set(), 0, 0
    for compile_ in sorted(run.compiles, key=lambda c: c.metrics["end_time_us"] - c.metrics["start_time_us"]):
        begin, end = (compile_.metrics[f"{word}_time_us"] * 1000 - offset for word in ("start", "end"))
        for sample in threads.between(compile_.thread, begin, end):
            if id(sample) in seen:
                continue
            seen.add(id(sample))
            total += 1
            found = run.dump.compiles[sample.compile] if sample.compile >= 0 else {}
            torchs = compile_.id or (compile_.rows[0]["trace_id"] if compile_.rows else None)
            wrong += found.get("id") != torchs
    # The edges of a compile are a few instructions wide.
    return "exact" if total and wrong <= 0.005 * total else f"{wrong} of {total} samples differ"


def backward_runs(run):
    """Where a node of autograd keeps its instance differs between releases; the first runs show it, uncounted."""
    regions = run.ledger.get("runs", {}).get("regions", [])
    return outcome(any(row["backward"] for row in regions), 1, "no run of a compiled backward was seen")


CELLS = {
    "ids and kinds": ids,
    "attempts": attempts,
    "functions": functions,
    "wall times": walls,
    "exact begin and end": marked_exact,
    "recompile reasons": reasons,
    "failures": failures,
    "graph breaks": graph_breaks,
    "thread-locals and frames": attribution,
    "samples by trace id": samples_inside,
    "runs of backwards": backward_runs,
}


def cells(run):
    found = {}
    for name, cell in CELLS.items():
        try:
            found[name] = cell(run)
        except (KeyError, IndexError, TypeError, AttributeError) as problem:
            found[name] = f"not compared: {type(problem).__name__}: {problem}"
    return found
