#!/usr/bin/env python3
"""The manual page, from what `--help` prints: man_page.py PROGRAM > dynprof-bpf.1"""

import datetime
import os
import re
import subprocess
import sys

# Two spaces before what it does, but for one after REQUIRED; names of formats have no spaces.
OPTION = re.compile(r"^  (\S.*?)(?: REQUIRED)?(?:(?:(?<=REQUIRED) |  +)(\S.*))?$")
FORMAT = re.compile(r"^  (\S+) +(\S.*)$")

INTRODUCTION = """.SH DESCRIPTION
Attaches to a running Python process that uses torch.compile and shows where each compile spends its time, by trace
id. It samples from the kernel with eBPF: nothing is set in the process beforehand, nothing is loaded into it, and it is
not stopped. It writes a directory with a report, a pstats file and a chrome trace per compile, and the recording
itself, which
.BR report ,
.B export
and
.B compare
read again.
"""

END = """.SH EXIT STATUS
0: done. 1: failed, with the reason and a hint on standard error. 2: the command line is wrong.
3: doctor found that a recording would not work. After
.B record -- CMD
that of CMD.
.SH FILES
.TP
.I /var/cache/dynprof-bpf
unwind tables of files that were seen before
.SH EXAMPLES
.nf
sudo dynprof-bpf --pid 4242
sudo dynprof-bpf top -p 4242
sudo dynprof-bpf record -d 30s -F 199 -o run -p 4242
dynprof-bpf report run --compile 0/1
dynprof-bpf compare before after
.fi
.SH SEE ALSO
.BR perf-record (1),
.BR capabilities (7)
"""


def output_of(program, *words):
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run([program, *words], capture_output=True, text=True, check=True, env=environment).stdout


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def options_of(text):
    """[(option, what it does, heading)], and the lines around them."""
    options, around = [], []
    heading = None
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            heading = line
        elif not line:
            continue
        elif heading and line.startswith("   ") and options:
            options[-1][1].append(line.strip())
        elif heading and (found := (FORMAT if heading == "Formats:" else OPTION).match(line)):
            options.append((found[1].replace("{false}", ""), [found[2]] if found[2] else [], heading))
        elif not line.startswith("Usage:"):
            around.append(line)
    return options, around


def section(text):
    options, around = options_of(text)
    out = []
    for line in around:
        out += [escape(line[:1].upper() + line[1:]), ".br"]
    for option, meaning, _ in options:
        out += [".TP", ".B " + escape(option), escape(" ".join(meaning) or option)]
    return "\n".join(out)


def page(program):
    main = output_of(program, "--help")
    version = output_of(program, "--version").split()[-1]
    verbs = re.findall(r"^  ([a-z]+)  +\S", main.split("Subcommands:")[1], re.M)
    made = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now().timestamp()))
    date = datetime.datetime.fromtimestamp(made, datetime.timezone.utc).date()
    yield f'.TH DYNPROF-BPF 1 "{date}" "dynprof-bpf {version}" "User Commands"'
    yield ".SH NAME\ndynprof\\-bpf \\- show where torch.compile spends its time in a live process"
    yield ".SH SYNOPSIS\n.B dynprof\\-bpf\n[OPTIONS] \\-\\-pid PID"
    for verb in verbs:
        yield f".br\n.B dynprof\\-bpf {verb}\n[OPTIONS]"
    yield INTRODUCTION.rstrip()
    yield ".SH OPTIONS\n" + section(main.split("Subcommands:")[0].split("Usage:")[1].split("\n", 1)[1])
    for verb in verbs:
        yield f".SH {verb.upper()}\n" + section(output_of(program, verb, "--help"))
    yield END.rstrip()


if __name__ == "__main__":
    print("\n".join(page(sys.argv[1])))
