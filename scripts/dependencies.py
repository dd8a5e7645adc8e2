#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/dependencies.py BUILD HEADER: prints the programs and then the tests of the build folder BUILD that depend on
a header of the library, such as `storage/merge.hpp`: two lines.

A test depends on a header if a source of its program includes the header, directly or through other files. The include
lines are read from the sources: with a precompiled header, the compiler's dependency files do not name the headers.
Includes within #if count as included.
"""

import collections
import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
FOLDERS = [ROOT / "include", ROOT / "tests", ROOT / "tools"]
RUNTIME = [ROOT / "src" / name for name in ("any/transport.cpp", "runtime.cpp", "text.cpp")]
RUNTIME += (ROOT / "src/schedules").glob("*.cpp")
DECLARED = re.compile(
    r"^(?:  )?(?:\w[\w:<>,&*\[\]() ]* )?(?:(?:struct|class|concept|using) (\w+)|(\w+)\()", re.MULTILINE
)


@functools.cache
def included_directly(path):
    """The files of this repository that a file includes."""
    files = []
    for quote, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        folders = ([path.parent] if quote == '"' else []) + FOLDERS
        files += [(folder / name).resolve() for folder in folders if (folder / name).is_file()][:1]
    return files


@functools.cache
def included(path):
    """The files of this repository that a file includes, also through other files, and the file itself."""
    found, new = set(), [path]
    while new:
        file = new.pop()
        if file not in found:
            found.add(file)
            new += included_directly(file)
    return found


def header_named(name):
    """The header of the library with this path, which may be relative to include/spar."""
    for path in (Path(name).resolve(), ROOT / "include" / name, ROOT / "include/spar" / name):
        if path.is_file() and ROOT / "include" in path.parents:
            return path.resolve()
    sys.exit(f"no header {name} in include/spar; expected a path such as storage/merge.hpp")


def words_of(source):
    """The words of a test and of the files that it includes from outside the library."""
    own = [file for file in included(source) if ROOT / "include" not in file.parents]
    return {word for file in own for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}


def closest_first(sources, header):
    """The sources that include the header: first the test of its name, then those that include it directly, then those
    that use most of the names which the header declares and few other tests use."""
    names = {one or other for one, other in DECLARED.findall(header.read_text(encoding="utf-8"))}
    words = {source: words_of(source) & names for source in sources if header in included(source)}
    uses = collections.Counter(name for found in words.values() for name in found)

    def distance(source):
        named = re.sub(r"_(test|fuzz)$", "", source.stem) == header.stem
        return not named, header not in included_directly(source), -sum(1 / uses[name] for name in words[source])

    return sorted(words, key=lambda source: (*distance(source), str(source)))


def programs(build):
    """The tests that run each program of a build folder, as {path of the program relative to the folder: names}."""
    runs = {}
    for file in sorted(Path(build).rglob("CTestTestfile.cmake")):
        text = file.read_text(encoding="utf-8")
        labels = dict(re.findall(r'^set_tests_properties\(\[=\[(.*?)\]=\] .*? LABELS "([^"]*)"', text, re.MULTILINE))
        for name, command in re.findall(r"^add_test\(\[=\[(.*?)\]=\] (.*)\)$", text, re.MULTILINE):
            if not {"unit", "mpi"} & set(labels.get(name, "").split(";")):
                continue  # a check, or the same program with more cases
            for word in re.findall(r'"([^"]*)"', command):
                if word.startswith(f"{build}/"):
                    runs.setdefault(word.removeprefix(f"{build}/"), []).append(name)
    return runs


@functools.cache
def inputs(build):
    """What each file of the build folder is made from, as {file: files}, without files that must only exist before."""
    text = (Path(build) / "build.ninja").read_text(encoding="utf-8").replace("$\n", "")
    rules = re.findall(r"^build ([^:\n]*): \S+ ?(.*)$", text, re.MULTILINE)
    return {made: needs.split(" || ")[0].split() for outputs, needs in rules for made in outputs.split() if made != "|"}


def sources_of(build, program):
    """The sources of a program and of the libraries of the build folder with which the program is linked, except those
    in tests/support and of the runtime, with which most tests are linked: a test that uses them includes their
    headers."""
    found, new = set(), [program]
    while new:
        file = new.pop()
        if file not in found:
            found.add(file)
            new += inputs(build).get(file, [])
    files = [Path(build, name) for name in sorted(found) if name.endswith((".cpp", ".cxx", ".cu", ".c"))]
    own = [f.resolve() for f in files if f.is_file() and f.is_relative_to(ROOT)]
    return [f for f in own if f.parent != ROOT / "tests/support" and f not in RUNTIME and f.name != "precompiled.cpp"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, header = str(Path(sys.argv[1]).resolve()), header_named(sys.argv[2])
    targets, tests = [], []
    for program, names in programs(build).items():
        if any(header in included(source) for source in sources_of(build, program)):
            targets.append(program)
            tests += names
    if not tests:
        sys.exit(f"no test of {sys.argv[1]} depends on {sys.argv[2]}")
    print(*targets)
    print(*tests)


if __name__ == "__main__":
    main()
