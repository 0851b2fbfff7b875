#!/usr/bin/env python3
"""fuzz.py SECONDS TARGET...: runs each libFuzzer target for so long, one after the other, on seeds made
from this machine (tests/fuzz/seeds.py). What a run found of new inputs is kept in build/fuzz-corpus for the
next one. The table names each finding's file; exit status 0 if there is none."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
CORPUS = BUILD / "fuzz-corpus"
FINDINGS = BUILD / "fuzz-findings"
INPUT_SECONDS = 25  # an input that takes longer is a finding
MEMORY_MB = 2048
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}


def run(target, seconds, seeds):
    corpus = CORPUS / target
    corpus.mkdir(parents=True, exist_ok=True)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    log = FINDINGS / f"{target}.log"
    began = time.time()
    with open(log, "wb") as out:
        status = subprocess.run(
            [BUILD / "libfuzzer" / target, f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS}",
             f"-rss_limit_mb={MEMORY_MB}", "-max_len=65536", "-print_final_stats=1",
             f"-artifact_prefix={FINDINGS}/{target}-", corpus, seeds / target],
            stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, **ENVIRONMENT},
        ).returncode
    text = log.read_text(errors="replace")
    edges = re.findall(r" cov: (\d+)", text)
    executed = re.search(r"number_of_executed_units: +(\d+)", text)
    found = sorted(p.name for p in FINDINGS.glob(f"{target}-*") if p.stat().st_mtime >= began)
    print(f"{target:16} {time.time() - began:7.0f} {int(executed.group(1)) if executed else 0:12,} "
          f"{edges[-1] if edges else '?':>7}  {', '.join(found) or ('none' if status == 0 else log)}", flush=True)
    return status == 0


def main():
    seconds, targets = int(sys.argv[1]), sys.argv[2:]
    seeds = BUILD / "fuzz-seeds"
    subprocess.run([sys.executable, ROOT / "tests" / "fuzz" / "seeds.py", seeds], check=True)
    print(f"{'target':16} {'seconds':>7} {'inputs':>12} {'edges':>7}  findings", flush=True)
    good = [run(target, seconds, seeds) for target in targets]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
