#!/usr/bin/env python3
"""The pictures of README.md, from real output: pictures.py DIRECTORY [--only NAME]

    report     docs/images/report.png and timeline.png: DIRECTORY/report.html, of `make demo`
    top        docs/images/top.png: `dynprof-bpf top` on a demo that is started for it, its compiles and its functions

Needs root, tmux and Chromium, and the build.
"""

import argparse
import html
import os
import re
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests"), str(REPO / "tests" / "runtime")]

import browser  # noqa: E402
import support  # noqa: E402
import tmux_terminal  # noqa: E402

IMAGES = REPO / "docs" / "images"
COLUMNS, ROWS = 120, 24
STYLES = {"1": "font-weight:bold", "7": "background:#d0d0d0;color:#101010", "31": "color:#ff6060"}
PAGE = """<!doctype html><meta charset="utf-8"><style>
body{margin:0;background:#101418;padding:10px;display:inline-block}
pre{font:13px/1.25 "DejaVu Sans Mono",monospace;color:#d8d8d8;margin:0 0 14px}
pre:last-child{margin:0}</style>"""


def as_html(screen):
    """A screen that tmux captured with its attributes."""
    out, is_open = "", False
    for part in re.split(r"(\x1b\[[0-9;]*m)", screen):
        if not part.startswith("\x1b["):
            out += html.escape(part)
            continue
        out += "</span>" if is_open else ""
        styles = [STYLES[code] for code in part[2:-1].split(";") if code in STYLES]
        is_open = bool(styles)
        out += f'<span style="{";".join(styles)}">' if is_open else ""
    return f"<pre>{out}</pre>"


def report_picture(page, directory):
    page.look(1240, 800)
    page.open(directory / "report.html")
    page.picture(IMAGES / "report.png")
    page.look(1240, 620)
    page.evaluate("[...document.querySelectorAll('h2')].find((one) => one.textContent == 'Timeline').scrollIntoView()")
    page.evaluate("scrollBy(0, -80)")  # what stays at the top of the window would cover it
    page.picture(IMAGES / "timeline.png")


def captured(screen):
    return screen.tmux("capture-pane", "-p", "-e").rstrip("\n")


def top_screens(folder):
    """Of the second compile while its kernels are compiled, then of the functions that took the most wall time."""
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
    job = support.spawn(
        [".venv/bin/python", "demo/train.py"], ready="loading data", timeout=180, env=environment, cwd=REPO
    )
    screen = tmux_terminal.Terminal(folder, COLUMNS, ROWS)
    try:
        tmux_terminal.begin_top(screen, job.process.pid, "--functions")
        screen.wait_for(r"^0/1 .* the compile pool", timeout=300)
        first = captured(screen)
        screen.type("tsss")
        screen.wait_for("s sort: wait all %")
        second = captured(screen)
        screen.type("q")
        return first, second
    finally:
        screen.close()
        job.kill()


def top_picture(page, folder):
    path = folder / "top.html"
    path.write_text(PAGE + "".join(map(as_html, top_screens(folder))), encoding="utf-8")
    page.look(1100, 700)
    page.open(path)
    width, height = page.evaluate("[document.body.offsetWidth, document.body.offsetHeight]")
    page.look(width, height)
    page.picture(IMAGES / "top.png")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", choices=("report", "top"))
    arguments = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    os.chdir(REPO)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        page = browser.Browser(Path(name))
        try:
            if arguments.only != "top":
                report_picture(page, arguments.directory)
            if arguments.only != "report":
                top_picture(page, Path(name))
        finally:
            page.close()


if __name__ == "__main__":
    main()
