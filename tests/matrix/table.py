"""docs/compatibility.md out of the rows of run.py."""

import collections

HEAD = """# Compatibility

`make matrix` made this page: for each CPython and torch that could be installed, dynprof-bpf recorded the same job
(`tests/programs/matrix_job.py`: inference, training, graph breaks, recompiles, dynamic shapes, compiled autograd, a
backend that fails, two threads, a reset) from before its first compile on, and the output was compared with torch's
own records at the end of the job.
"""

LEGEND = """
*exact*: each of these equals torch's own record: ids and kinds, attempts, functions, wall times (within 1 % or
2 ms), recompile reasons, failures, graph breaks with lines, calls of Dynamo's own profiler (torch 2.12 and later have
one), every sample inside a compile; begin and end of each attempt come from torch's own calls of its clock, and
thread-locals and frames never name different compiles. *degrades*: what differs is in the table below.
*no wheel*: that release has none for that CPython in pip's index.
"""
NOT_RUN = "not run"


def is_failure(row):
    """Something that should have worked, as opposed to what there is not."""
    return "problem" in row and not row["problem"].startswith(("no wheel", NOT_RUN, "not installed"))


def differing(row):
    if is_failure(row):
        return {"compiles": row["problem"].splitlines()[-1][:200]}
    return {name: text for name, text in row.get("cells", {}).items() if text not in ("exact", "-")}


def verdict(row):
    if "problem" in row:
        return row["problem"].splitlines()[-1][:200]
    wrong = differing(row)
    return "exact" if not wrong else "degrades: " + ", ".join(wrong)


def escape(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def row_of(rows, name, torch):
    return rows.get(f"{name}-{torch}", {"problem": NOT_RUN})


def versions(rows):
    """Which program made them."""
    counted = collections.Counter(row.get("program", "?") for row in rows.values() if "cells" in row)
    return ", ".join(f"{version} ({count} rows)" for version, count in counted.most_common())


def torches_without(fact, pythons, torches, rows):
    return [torch for torch in torches if any(row_of(rows, name, torch).get(fact) is False for name in pythons)]


def document(pythons, torches, rows):
    lines = [HEAD, f"Made with {versions(rows)}.", ""]
    lines.append("| CPython | " + " | ".join(f"torch {torch}" for torch in torches) + " |")
    lines.append("|---" * (len(torches) + 1) + "|")
    details = []
    for name in pythons:
        texts = []
        for torch in torches:
            row = row_of(rows, name, torch)
            texts.append("degrades" if differing(row) else escape(verdict(row)))
            details += [(name, torch, what, text) for what, text in differing(row).items()]
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    lines.append(LEGEND)
    if alone := torches_without("threads", pythons, torches, rows):
        lines += [
            "One record for all threads, in which overlapping compiles are mixed up, is kept by torch"
            f" {', '.join(alone)}: two",
            "threads that compile at once were left out there.",
            "",
        ]
    if undivided := torches_without("attempt_phases", pythons, torches, rows):
        lines += [
            f"torch {', '.join(undivided)} has no phase for an attempt. An attempt after a restart begins at",
            "the first phase inside it, which is not exact, and one without a phase is counted as part of the attempt",
            "before.",
            "",
        ]
    if details:
        lines += ["## What degrades", "", "| CPython | torch | what | compared with torch |", "|---|---|---|---|"]
        lines += [f"| {name} | {torch} | {what} | {escape(text)} |" for name, torch, what, text in details]
    return "\n".join(lines).rstrip() + "\n"
