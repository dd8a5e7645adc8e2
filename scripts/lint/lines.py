#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that text is UTF-8, with lines of at most 120 characters (except rows of tables) and no trailing blanks,
that the row below the heads of a table stands alone in its line (a table whose rows are wrapped is no table), and that
no line of a page begins with a comment and goes on with text (this would be HTML, which ends a paragraph)."""

import re

import tree

LIMIT = 120
NO_TEXT = (".png", ".svg", ".gz", ".bin")
RAW = ("bench/results/", "python/spar/_spar.pyi")  # output of programs


def faults(name, content):
    """(line, sentence) for each fault in a file's bytes."""
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        yield 1, f"invalid UTF-8: {error.reason} at byte {error.start}"
        return
    for number, line in enumerate(lines, 1):
        row = name.endswith(".md") and line.startswith("|")
        if len(line) > LIMIT and not row and " " in line.strip()[:LIMIT]:
            yield number, f"{len(line)} characters, expected at most {LIMIT}"
        if row and "|---" in line and not re.fullmatch(r"\|(:?-+:?\|)+", line):
            yield number, "a table with several rows in one line"
        if name.endswith(".md") and re.match(r"[ -]*<!-- [^>]*-->.", line):
            yield number, "a comment and then text, which is HTML; expected a word before the comment"
        if line != line.rstrip():
            yield number, "trailing blank"


def check():
    for name in tree.files():
        if not name.endswith(NO_TEXT) and name != "LICENSE" and not name.startswith(RAW):
            for line, sentence in faults(name, (tree.ROOT / name).read_bytes()):
                yield name, line, sentence


def self_test():
    long = b"word " * 24 + b"x"
    yield "121 characters", len(list(faults("a.hpp", long))) == 1
    yield "120 characters", not list(faults("a.hpp", long[1:]))
    yield "120 characters of more bytes", not list(faults("a.hpp", "é ".encode() * 59 + b"xy"))
    yield "a table", not list(faults("a.md", b"| " + long))
    yield "rows of a table", not list(faults("a.md", b"| a | b |\n|---|---:|\n| 1 | 2 |"))
    yield "rows of a table in one line", len(list(faults("a.md", b"| a | b | |---|---:| | 1 | 2 |"))) == 1
    yield "a table elsewhere", len(list(faults("a.py", b"| " + long))) == 1
    yield "text after a comment", [n for n, _ in faults("a.md", b"takes\n<!-- =x -->2<!-- --> s\n<!-- =x -->")] == [2]
    yield "a comment in text", not list(faults("a.md", b"takes <!-- =x -->2<!-- --> s\n\n<!-- =table -->\n"))
    yield "a blank at the end", [n for n, _ in faults("a.md", b"one\ntwo \n")] == [2]
    yield "another encoding", len(list(faults("a.md", "é".encode("latin-1")))) == 1


tree.main(check, self_test)
