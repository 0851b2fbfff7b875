"""The generated reference pages are those of this program and these sources."""

import subprocess
import sys

import support


def check_reference(root=support.REPO):
    return subprocess.run(
        [sys.executable, root / "packaging" / "reference.py", support.BUILD / "dynprof-bpf", "--check"],
        capture_output=True, text=True, timeout=60,
    )


def test_reference_pages_are_up_to_date():
    done = check_reference()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_page_is_noticed(tmp_path):
    for name in (
        *("packaging/reference.py", "packaging/man_page.py"),
        *("bpf/counters.h", "symbolizer/recording/read_counters.h"),
        *("docs/reference/command-line.md", "docs/reference/counters.md"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (support.REPO / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("`-F,--frequency", "`-F,--rate"), encoding="utf-8")
    done = check_reference(tmp_path)
    assert done.returncode == 1 and "hint: make reference" in done.stdout, done.stdout + done.stderr


def test_man_page_has_every_option():
    program = support.BUILD / "dynprof-bpf"
    made = subprocess.run(
        [sys.executable, support.REPO / "packaging" / "man_page.py", program],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.replace("\\-", "-")
    page = (support.REPO / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    options = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `-")]
    assert len(options) > 40
    assert [option for option in options if option not in made] == []
