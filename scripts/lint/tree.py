# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the lints share: list the repository's files, strip comments and strings from C++, and run a lint."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP = (".hpp", ".cpp", ".cuh", ".cu", ".h", ".c")


def files(*suffixes, under=""):
    """Paths relative to the root: tracked and unignored files, or every file if this is not a git checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, plain in os.walk(ROOT):
            folders[:] = [f for f in folders if not f.startswith((".", "build"))]
            names += [os.path.relpath(os.path.join(folder, name), ROOT) for name in plain]
    found = {n for n in names if n.startswith(under) and (not suffixes or n.endswith(suffixes))}
    return sorted(n for n in found if (ROOT / n).is_file())


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)


def code(source):
    """C++ text with comments replaced by blanks and string literals by ""; keeps line numbers."""

    def blank(match):
        lines = "\n" * match.group().count("\n")
        return " " + lines if match.group().startswith("/") else '""' + lines

    return _NOISE.sub(blank, source)


def unversioned(text):
    """C++ text, or names of symbols, without the inline namespace that names the version."""
    return re.sub(r"\bspar::(?:inline )?v\d+_\d+\b", "spar", text)


def advise(name, line, sentence):
    """Prints advice, which does not make a lint fail."""
    print(f"{name}:{line}: advice: {sentence}")


def main(check, self_test):
    """Runs a lint. `check()` yields (file, line, sentence) per fault; `self_test()` yields (error message, success)."""
    if "--self-test" in sys.argv[1:]:
        results = list(self_test())
        wrong = [what for what, held in results if not held]
        for what in wrong:
            print(f"self-test: {what}")
        print(f"{len(results) - len(wrong)} of {len(results)} self-tests passed")
        sys.exit(1 if wrong or not results else 0)
    found = sorted(check())
    for name, line, sentence in found:
        print(f"{name}:{line}: {sentence}")
    sys.exit(1 if found else 0)
