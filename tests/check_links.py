#!/usr/bin/env python3
"""Documentation links: every relative link in a Markdown file leads to an existing file and heading, and every
`docs/...` path that is mentioned anywhere in the tree exists."""

import re
import sys

import tree_check

FOLDERS = ("bpf", "user", "symbolizer", "cupti", "tests", "scripts", "packaging", "demo", "mk", "docs", ".ci")
SUFFIXES = {".h", ".c", ".cpp", ".py", ".sh", ".mk", ".md", ".txt", ".yaml", ".json", ""}

LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
EXTERNAL = re.compile(r"[a-z]+:")
MENTION = re.compile(r"(?<![\w/.-])docs/[\w./*-]*[\w*/]")
FENCE = re.compile(r"^(```|~~~)")
HEADING = re.compile(r"^#{1,6} +(.*?) *$")


def sources(root):
    yield from (path for path in sorted(root.iterdir()) if path.is_file() and path.suffix in SUFFIXES)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def outside_of_code(text):
    """(line number, line) without fenced blocks and code spans: a link in those is an example."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def anchors(path):
    """The anchors that headings of a Markdown file get: lower case, words joined by dashes."""
    fenced, found = False, set()
    for line in path.read_text(encoding="utf-8").splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := HEADING.match(line)):
            text = re.sub(r"[^\w\- ]", "", heading[1].lower())
            found.add(text.replace(" ", "-"))
    return found


def broken_links(path):
    for number, line in outside_of_code(path.read_text(encoding="utf-8")):
        for target in LINK.findall(line):
            if EXTERNAL.match(target):
                continue
            name, _, anchor = target.partition("#")
            file = path.parent / name if name else path
            if not file.exists():
                yield f"{number}: link to {target}: no such file"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                yield f"{number}: link to {target}: no such heading"


def broken_mentions(root, path):
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        for mention in MENTION.findall(line):
            exists = any(root.glob(mention)) if "*" in mention else (root / mention).exists()
            if not exists:
                yield f"{number}: {mention} does not exist"


def offences(root):
    for path in sources(root):
        found = list(broken_mentions(root, path))
        if path.suffix == ".md":
            found += broken_links(path)
        yield from (f"{path.relative_to(root)}:{one}" for one in found)


if __name__ == "__main__":
    sys.exit(tree_check.main(offences))
