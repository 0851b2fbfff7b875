#!/usr/bin/env python3
"""Checks a chrome trace (.json or .json.gz) against what viewers need; prints what is wrong.

  check_chrome_trace.py TRACE...        exit status 0: nothing wrong, 1: something is, 2: usage

Checked: the JSON itself (UTF-8, no NaN, no key twice); the object form; metadata events before all
others; ts and dur in microseconds with exactly three decimals; slices of one (pid, tid) nest, a
child beginning after its parent; every event's thread has a name and a sort index and its process a
name, a sort index too. Flow events, where there are any, start and end.
"""

import gzip
import json
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

THREAD_METADATA = {"thread_name", "thread_sort_index"}
PROCESS_METADATA = {"process_name", "process_sort_index"}
METADATA_ARGUMENT = {
    "thread_name": "name",
    "process_name": "name",
    "process_labels": "labels",
    "thread_sort_index": "sort_index",
    "process_sort_index": "sort_index",
}
MAX_PROBLEMS = 20


class Problems(list):
    def add(self, text):
        if len(self) < MAX_PROBLEMS:
            self.append(text)
        elif len(self) == MAX_PROBLEMS:
            self.append("... and more")


def _no_double_keys(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError(f"a key twice in {pairs!r}")
    return result


def _no_constant(text):
    raise ValueError(f"{text} is not JSON")


def load(path):
    """The parsed file; numbers with a point become Decimal, so that their digits can be checked."""
    raw = Path(path).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    elif str(path).endswith(".gz"):
        raise ValueError("is not gzip")
    return json.loads(
        raw.decode("utf-8"),
        parse_float=Decimal,
        parse_constant=_no_constant,
        object_pairs_hook=_no_double_keys,
    )


def _is_micros(value):
    return isinstance(value, Decimal) and value.as_tuple().exponent == -3 and value >= 0


def _check_metadata(event, where, problems):
    argument = METADATA_ARGUMENT.get(event.get("name"))
    if argument is None:
        problems.add(f"{where}: unknown metadata {event.get('name')!r}")
        return
    value = event.get("args", {}).get(argument)
    if argument == "sort_index":
        if not isinstance(value, int):
            problems.add(f"{where}: sort_index {value!r}")
    elif not isinstance(value, str) or (argument == "name" and not value):
        problems.add(f"{where}: {argument} {value!r}")


def _check_slice(event, where, problems):
    for key in ("ts", "dur"):
        if not _is_micros(event.get(key)):
            problems.add(f"{where}: {key} {event.get(key)!r} is not microseconds with 3 decimals")
            return False
    if not isinstance(event.get("name"), str) or not event["name"]:
        problems.add(f"{where}: a slice without a name")
    if not isinstance(event.get("cat"), str) or not event["cat"]:
        problems.add(f"{where}: a slice without a category")
    if event["dur"] <= 0:
        problems.add(f"{where}: a slice without length")
        return False
    return True


def _check_nesting(row, slices, problems):
    slices.sort(key=lambda s: (s["ts"], -s["dur"]))
    opened = []
    for s in slices:
        end = s["ts"] + s["dur"]
        while opened and opened[-1]["ts"] + opened[-1]["dur"] <= s["ts"]:
            opened.pop()
        if opened:
            parent = opened[-1]
            parent_end = parent["ts"] + parent["dur"]
            if end > parent_end or s["ts"] == parent["ts"]:
                what = "overlaps" if end > parent_end else "begins together with"
                problems.add(
                    f"row {row}: {s['name']!r} [{s['ts']}, {end}] {what}"
                    f" {parent['name']!r} [{parent['ts']}, {parent_end}]"
                )
        opened.append(s)


def check(trace):
    """What is wrong with a loaded trace, one sentence each."""
    problems = Problems()
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["not the object form with traceEvents"]
    if trace.get("displayTimeUnit") not in ("ms", "ns"):
        problems.add("displayTimeUnit missing")
    if not isinstance(trace.get("baseTimeNanoseconds"), int):
        problems.add("baseTimeNanoseconds missing")

    metadata = defaultdict(set)  # (pid, tid) and (pid, None) -> names of metadata events
    rows = defaultdict(list)
    flows = defaultdict(set)
    past_metadata = False
    for number, event in enumerate(trace["traceEvents"]):
        where = f"event {number}"
        if not isinstance(event, dict):
            problems.add(f"{where}: not an object")
            continue
        kind, pid, tid = event.get("ph"), event.get("pid"), event.get("tid")
        if not isinstance(pid, int) or not isinstance(tid, int):
            problems.add(f"{where}: pid {pid!r}, tid {tid!r}")
            continue
        if kind == "M":
            if past_metadata:
                problems.add(f"{where}: metadata after other events")
            _check_metadata(event, where, problems)
            row = (pid, tid) if event.get("name") in THREAD_METADATA else (pid, None)
            if event.get("name") in metadata[row]:
                problems.add(f"{where}: {event['name']} of {row} a second time")
            metadata[row].add(event.get("name"))
            continue
        past_metadata = True
        if kind == "X":
            if _check_slice(event, where, problems):
                rows[(pid, tid)].append(event)
        elif kind in ("s", "f"):
            flows[(event.get("cat"), event.get("id"))].add(kind)
            rows[(pid, tid)]  # its thread needs metadata too
        else:
            problems.add(f"{where}: unexpected ph {kind!r}")

    for row, slices in rows.items():
        for needed, have in ((THREAD_METADATA, metadata[row]),
                             (PROCESS_METADATA, metadata[(row[0], None)])):
            for name in sorted(needed - have):
                problems.add(f"row {row} has no {name}")
        _check_nesting(row, slices, problems)
    for flow, ends in flows.items():
        if ends != {"s", "f"}:
            problems.add(f"flow {flow} has only {''.join(sorted(ends))}")
    return list(problems)


def check_file(path):
    try:
        trace = load(path)
    except (OSError, ValueError, EOFError) as problem:
        return [str(problem)]
    return check(trace)


def main(paths):
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = False
    for path in paths:
        for problem in check_file(path):
            print(f"{path}: {problem}")
            wrong = True
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
