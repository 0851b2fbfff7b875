#!/usr/bin/env python3
"""A class has at most 15 public members, so that its purpose can be seen at once. A header with a larger one
says why in a comment that contains "15 public members".

Counted are the names of functions and data, each once, without constructors, destructors and operators.
Of a struct, which is a record, only its functions count. Prints one line per offence; exit status 1 when there is one.
"""

import re
import sys

import tree_check

FOLDERS = ("user", "symbolizer")
MOST = 15
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*$", re.S | re.M)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'')
CLASS = re.compile(r"\b(?<!enum )(class|struct)\s+(?:\[\[\w+\]\]\s*)?(\w+)(?:\s+final)?\s*(?::[^;{}()]*)?\{")
ACCESS = re.compile(r"\s*(public|protected|private)\s*:(?!:)")
NO_MEMBER = re.compile(r"\s*(using|friend|typedef|enum|struct|class|union|static_assert|static constexpr)\b")


def closing(text, at):
    """The index behind the bracket that closes the one at `at`."""
    pairs = {"{": "}", "(": ")", "[": "]"}
    depth = 0
    for i in range(at, len(text)):
        if text[i] in pairs:
            depth += 1
        elif text[i] in pairs.values():
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def declarations(body):
    """Each declaration of a class body: its text without what is in braces, and whether it is public."""
    access, i, flat = None, 0, ""
    while i < len(body):
        found = ACCESS.match(body, i) if not flat.strip() else None
        if found:
            access, i, flat = found.group(1), found.end(), ""
            continue
        char = body[i]
        if char == "{":
            i = closing(body, i)
            # A function's body ends the declaration; an initializer or a type goes on to a semicolon.
            rest = body[i:].lstrip()
            is_function = ")" in flat and not NO_MEMBER.match(flat)
            if is_function and not rest.startswith((";", ",", "{")):
                yield access, flat
                flat = ""
            else:
                flat += "{}"
            continue
        if char == "(":
            end = closing(body, i)
            flat += "()"
            i = end
            continue
        if char == ";":
            if flat.strip():
                yield access, flat
            flat = ""
        else:
            flat += char
        i += 1


def names(declaration, owner):
    """The members that a declaration adds."""
    text = re.sub(r"\[\[\w+\]\]", "", declaration).strip()
    text = re.sub(r"template\s*<[^{}]*?>\s*(?=\w)", "", text)
    if NO_MEMBER.match(text) or "operator" in text:
        return []
    if "()" in text:
        found = re.search(r"(~?\w+)\s*\(\)", text)
        name = found.group(1) if found else ""
        return [] if not name or name.lstrip("~") == owner or name.isupper() else [name]
    while True:  # arguments of templates have commas of their own
        shorter = re.sub(r"<[^<>]*>", "", text)
        if shorter == text:
            break
        text = shorter
    found = []
    for part in text.split(","):
        words = re.findall(r"\w+", re.split(r"=|\{|\[|(?<!:):(?!:)", part)[0])
        if words:
            found.append(words[-1])
    return found


def classes(text):
    """Name and public members of each class, nested ones too."""
    for found in CLASS.finditer(text):
        kind, name = found.groups()
        begin = found.end() - 1
        body = text[begin + 1 : closing(text, begin) - 1]
        members = set()
        for access, declaration in declarations(body):
            if (access or ("private" if kind == "class" else "public")) != "public":
                continue
            if kind == "class" or "()" in declaration:
                members.update(names(declaration, name))
        yield name, sorted(members)


def offences(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.h")):
            source = path.read_text(encoding="utf-8")
            if f"{MOST} public members" in source:
                continue
            text = STRING.sub('""', COMMENT.sub("", source))
            for name, members in classes(text):
                if len(members) > MOST:
                    where = path.relative_to(root)
                    yield f"{where}: {name} has {len(members)} public members, at most {MOST}: {', '.join(members)}"


if __name__ == "__main__":
    sys.exit(tree_check.main(offences))
