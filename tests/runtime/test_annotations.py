"""Ranges that a program marks in itself, compared with the clock that it reads beside each mark."""

import gzip
import json
import shutil
import subprocess

import pytest

import samples
import support

JOB = support.REPO / "tests" / "programs" / "annotation_job.py"

NVTX = """
int nvtxRangePushA(const char* text) { return text != 0; }
int nvtxRangePop(void) { return 0; }
int nvtxRangePushEx(const void* attributes) { return attributes != 0; }
unsigned long nvtxRangeStartA(const char* text) { return text == 0; }
void nvtxRangeEnd(unsigned long id) { (void)id; }
int nvtxDomainRangePushEx(void* domain, const void* attributes) { return domain != attributes; }
int nvtxDomainRangePop(void* domain) { return domain != 0; }
"""


class Run:
    def __init__(self, folder, python, *arguments, record=()):
        self.folder = folder
        target = support.spawn([python, JOB, folder / "truth.json", *arguments], timeout=400,
                               env={"TMPDIR": str(folder)})
        dynprof = support.Dynprof(folder)
        try:
            self.out = folder / "out"
            run = dynprof.start("--pid", target.pid, "-o", self.out, *record)
            samples.wait_until_sampling(run)
            target.send("go")
            target.wait_for("^done", timeout=400)
            target.send("end")
            assert target.wait() == 0, target.text
            done = run.wait()
            assert done.rc == 0, done
            self.text = done.out + done.err
        finally:
            dynprof.close()
            target.kill()
        self.truth = json.loads((folder / "truth.json").read_text())
        with gzip.open(self.out / "trace.json.gz", "rt") as file:
            trace = json.load(file)
        base = trace["dynprof"]["start_monotonic_ns"]
        self.spans = {}
        for event in trace["traceEvents"]:
            if event.get("cat") != "user_annotation":
                continue
            begin = base + round(event["ts"] * 1000)
            args = event["args"]
            end_seen = args.pop("end", "seen")
            span = {"begin": begin, "end": begin + round(event["dur"] * 1000), "rounded": 0, "end_seen": end_seen}
            span |= args
            if "whole_ms" in span:  # the slice is cut, because it leaves the one around it
                span |= {"end": begin + round(span["whole_ms"] * 1e6), "rounded": 1000}
            self.spans.setdefault((event["name"], span["kind"]), []).append(span)


def build_nvtx(folder):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("needs a C compiler")
    source = folder / "nvtx.c"
    source.write_text(NVTX)
    library = folder / "libnvToolsExt.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


@pytest.fixture(scope="module")
def marked(require_root_bpf, either_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("marked")
    return Run(folder, either_python, "--nvtx", build_nvtx(folder), record=["--record-functions"])


@pytest.fixture(scope="module")
def flooded(require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flooded")
    return Run(folder, venv_python, "--nvtx", build_nvtx(folder), "--flood", "2")


# The probe is hit between two readings of the clock: no allowance is needed.
@pytest.mark.parametrize("kind", ["record_function", "ITT", "NVTX"])
def test_spans_are_those_of_the_targets_clock(marked, kind):
    expected = [one for one in marked.truth["ranges"] if one["kind"] == kind]
    assert len(expected) == (280 if kind == "NVTX" else 80)
    for name in {one["name"] for one in expected}:
        truth = sorted((one for one in expected if one["name"] == name), key=lambda one: one["begin"])
        spans = sorted(marked.spans[name, kind], key=lambda one: one["begin"])
        assert len(spans) == len(truth)
        for one, span in zip(truth, spans, strict=True):
            assert span["end_seen"] == "seen"
            assert one["begin"][0] <= span["begin"] <= one["begin"][1]
            assert one["end"][0] <= span["end"] + span["rounded"] and span["end"] <= one["end"][1]


def test_overlapping_started_ranges_are_open_until_the_first_end(marked):
    truth = marked.truth["overlapping"]
    assert len(truth) == 2
    first_end = min(one["end"] for one in truth)
    for one in truth:
        [span] = marked.spans[one["name"], "NVTX"]
        assert one["begin"][0] <= span["begin"] <= one["begin"][1]
        assert first_end[0] <= span["end"] + span["rounded"] and span["end"] <= first_end[1]
        assert span["end_seen"] == "not seen"


def test_names_are_cut_and_escaped(marked):
    [name] = [name for name, _ in marked.spans if name.startswith("name with")]
    assert len(name.encode()) == 127
    assert "\x1b" not in marked.text


def test_the_report_has_them(marked):
    assert "Annotations: ranges that the program marks" in marked.text
    assert "compile the model" in marked.text
    only = subprocess.run([support.BINARY, "report", marked.out, "--annotation", "compile the m*"], check=True,
                          capture_output=True, text=True).stdout
    none = subprocess.run([support.BINARY, "report", marked.out, "--annotation", "no such range"], check=True,
                          capture_output=True, text=True).stdout
    assert "0/0" in only
    assert "No samples." in none and "No samples." not in only


def test_a_flood_is_limited(flooded):
    """Of 100,000 NVTX ranges in a second and more."""
    flood = flooded.truth["flood"]
    assert flood["count"] > 100_000 * flood["seconds"]
    [note] = [line for line in flooded.text.splitlines() if "its ranges are not recorded any more" in line]
    assert 0 < len(flooded.spans["flood", "NVTX"]) <= 8000
    # What came before is whole.
    for kind in ("ITT", "NVTX"):
        assert len(flooded.spans["step", kind]) == 40


def test_a_flood_removes_the_probes(flooded, marked):
    before, probed, after = flooded.truth["code"]
    assert before != probed and before == after
    before, probed, after = marked.truth["code"]
    assert before != probed and probed == after


def test_record_functions_are_recorded_on_request_alone(flooded):
    assert not [name for name, kind in flooded.spans if kind == "record_function"]
