"""docs/compatibility.md out of the rows of run.py."""

HEAD = """# Compatibility

`make matrix` made this page: under each CPython and torch that could be had, dynprof-bpf recorded the same job
(`tests/programs/matrix_job.py`: inference, training, graph breaks, recompiles, dynamic shapes, compiled autograd, a
backend that fails, two threads, a reset) from before its first compile on, and the output was held against what
torch itself had noted of the job at its end.

"""

LEGEND = """
*exact*: every compile, phase, reason and sample that torch's own account can be compared with is the same; wall times
within 1 % or 2 ms. *degrades*: what differs is in the table below. *no wheel*: that release has none for that CPython
in pip's index.
"""


def is_failure(row):
    """Something that should have worked, as opposed to what there is not."""
    return "problem" in row and not row["problem"].startswith(("no wheel", "not run", "not installed"))


def differing(row):
    return {name: text for name, text in row.get("cells", {}).items() if text not in ("exact", "-")}


def verdict(row):
    if "problem" in row:
        return row["problem"].splitlines()[-1][:200]
    wrong = differing(row)
    return "exact" if not wrong else "degrades: " + ", ".join(wrong)


def escape(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def document(pythons, torches, rows):
    lines = [HEAD]
    lines.append("| CPython | " + " | ".join(f"torch {torch}" for torch in torches) + " |")
    lines.append("|---" * (len(torches) + 1) + "|")
    details = []
    for name in pythons:
        texts = []
        for torch in torches:
            row = rows.get(f"{name}-{torch}", {"problem": "not run"})
            texts.append("degrades" if differing(row) else escape(verdict(row)))
            details += [(name, torch, what, text) for what, text in differing(row).items()]
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    lines.append(LEGEND)
    if details:
        lines += ["## What degrades", "", "| CPython | torch | what | compared with torch |", "|---|---|---|---|"]
        lines += [f"| {name} | {torch} | {what} | {escape(text)} |" for name, torch, what, text in details]
    return "\n".join(lines).rstrip() + "\n"
