#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that C++ blocks in the documentation are complete programs, which tests compile and run, or parts of sources,
and that C blocks are parts of sources.

snippets.py --programs FILE.md DIRECTORY writes the complete programs of a page to a directory and prints their paths,
except the programs of examples/gallery, which are compiled there.
"""

import pathlib
import re
import sys

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.M | re.S)
C_BLOCK = re.compile(r"^```c\n(.*?)^```$", re.M | re.S)


def blocks(page, of=BLOCK):
    return [(page[: m.start()].count("\n") + 1, m.group(1)) for m in of.finditer(page)]


def whole(block):
    return re.search(r"^int main\(", block, re.M) is not None


def squeezed(text):
    return re.sub(r"\s+", "", text)


def stray(page, sources):
    """The lines of blocks that are neither complete programs nor part of one of the sources."""
    parts = [(line, block) for line, block in blocks(page) if not whole(block)] + blocks(page, C_BLOCK)
    return [line for line, block in parts if not any(squeezed(block) in s for s in sources)]


def own_programs(page, gallery):
    """The complete programs of a page that are not in the gallery."""
    return [b for _, b in blocks(page) if whole(b) and not any(squeezed(b) in program for program in gallery)]


def write_programs(page, directory):
    gallery = pathlib.Path(__file__).parents[2] / "examples/gallery"
    programs = [squeezed(file.read_text()) for file in gallery.glob("*.cpp")]
    directory.mkdir(parents=True, exist_ok=True)
    for number, block in enumerate(own_programs(page.read_text(), programs), 1):
        name = directory / f"{page.stem}_{number}.cpp"
        if not name.exists() or name.read_text() != block:
            name.write_text(block)
        print(name)


def check():
    import tree

    shown = [n for n in tree.files(".cpp", ".hpp", ".cu", ".cuh", ".c", ".h")
             if not n.startswith("tests/") or n.startswith("tests/extending/")]
    sources = [squeezed(tree.text(n)) for n in shown]
    for name in tree.files(".md"):
        for line in stray(tree.text(name), sources):
            yield name, line, "block of code that is neither a complete program nor part of a source file"


def self_test():
    page = "a\n```cpp\nint x = 1;\n```\n```cpp\nint main() {\n}\n```\n"
    yield "rejected a line of a source", stray(page, [squeezed("void f();\nint x =\n 1;")]) == []
    yield "accepted a line that is in no source", stray(page, [squeezed("int y = 1;")]) == [2]
    in_c = "```c\nint main(void) {\n}\n```\n"
    yield "accepted a program in C that is in no source", stray(in_c, []) == [1]
    yield "rejected a program in C", stray(in_c, [squeezed("int main(void) { }")]) == []
    yield "left out a program", own_programs(page, [squeezed("int main() { return 0; }")]) == ["int main() {\n}\n"]
    yield "wrote a program of the gallery", own_programs(page, [squeezed("// a\nint main() {}")]) == []


if len(sys.argv) == 4 and sys.argv[1] == "--programs":
    write_programs(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
else:
    import tree

    tree.main(check, self_test)
