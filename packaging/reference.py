#!/usr/bin/env python3
"""Reference pages made from the sources: what `--help` prints, and the counters of losses.

    reference.py PROGRAM           write docs/reference/command-line.md and counters.md
    reference.py PROGRAM --check   exit status 1, and the difference, if they are not up to date
"""

import difflib
import re
import sys
from pathlib import Path

import man_page

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
COUNTER_FILES = ("bpf/counters.h", "symbolizer/recording/read_counters.h")
COUNTER = re.compile(r'_COUNTER\(\w+,\s*"(\w+)",\s*("(?:[^"]|"\s*")*")\)')

COMMAND_LINE = """# Command line

Generated from `--help` by `make reference`; do not edit. Exit status and messages: [messages.md](messages.md).
"""

COUNTERS = """# Counters of losses

Generated from `bpf/counters.h` and `symbolizer/recording/read_counters.h` by `make reference`; do not edit.

Each counter that is not 0 is listed with its sentence in the report's header, and by its name in `lost` of
[compiles.json](compiles-json.md). `samples` is not a loss.

| name | sentence |
|---|---|
"""


def code(text):
    return f"`{text}`"


def cell(text):
    return text.replace("|", "\\|")


def options_table(options):
    for headings, title in ((("Positionals:", "Options:"), "option"), (("Formats:",), "format")):
        rows = [(option, meaning) for option, meaning, heading in options if heading in headings]
        if rows:
            yield f"| {title} | |"
            yield "|---|---|"
            yield from (f"| {code(cell(option))} | {cell(' '.join(meaning))} |" for option, meaning in rows)
            yield ""


def verb_section(program, verb):
    options, around = man_page.options_of(man_page.output_of(program, verb, "--help"))
    yield f"\n## {verb}\n"
    yield f"{around[0][:1].upper()}{around[0][1:]}.\n"
    yield from options_table(options)
    yield from around[1:]


def command_line(program):
    main = man_page.output_of(program, "--help")
    usage, verbs = main.split("Subcommands:")
    options, around = man_page.options_of(usage)
    verbs = re.findall(r"^  ([a-z]+)  +(\S.*)$", verbs, re.M)
    lines = [COMMAND_LINE, "```", "dynprof-bpf [OPTIONS] --pid PID"]
    lines += [f"dynprof-bpf {verb} [OPTIONS]" for verb, _ in verbs]
    lines += ["```", "", *around, ""]
    lines += ["| verb | |", "|---|---|", *(f"| [{verb}](#{verb}) | {meaning} |" for verb, meaning in verbs), ""]
    lines += [*options_table(options)]
    for verb, _ in verbs:
        lines += verb_section(program, verb)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def counters():
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in COUNTER_FILES).replace("\\\n", "\n")
    rows = [(name, "".join(re.findall(r'"([^"]*)"', sentence))) for name, sentence in COUNTER.findall(text)]
    return COUNTERS + "".join(f"| `{name}` | {sentence} |\n" for name, sentence in rows)


def main():
    program, check = sys.argv[1], "--check" in sys.argv[2:]
    stale = False
    for name, text in (("command-line.md", command_line(program)), ("counters.md", counters())):
        path = REFERENCE / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if check and before != text:
            stale = True
            lines = difflib.unified_diff(before.splitlines(True), text.splitlines(True), str(path), "made")
            sys.stdout.writelines(lines)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print("hint: make reference")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
