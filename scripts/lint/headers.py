#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that sources have a licence line and scripts can be executed, and that headers have a description and avoid
slow includes, and that namespaces name the version. Advises that headers are short."""

import os
import re
from statistics import median

import tree

# REUSE-IgnoreStart
LICENCE = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
# REUSE-IgnoreEnd
LONGEST, LONGEST_MEDIAN, WIDEST = 450, 150, 120
GUARD = "spar/core/compiler.hpp"  # says in one sentence with which options no header would compile
SLOW = "iostream regex functional ranges random format chrono thread condition_variable memory".split()
# Take a shared_ptr; programs over MPI or threads do not include these headers, except for any_compose.hpp.
SHARING = ("include/spar/rendezvous/", "include/spar/pmix.hpp", "include/spar/transport/ucx",
           "include/spar/system/ucx_", "include/spar/any_ucx.hpp", "include/spar/system/any/ucx",
           "include/spar/system/any/group-inl.hpp")
ROOT_HEADER = "include/spar/spar.hpp"  # which most programs include
ALGOBASE = "include/spar/core/util/algobase.hpp"  # includes <algorithm> if there is nothing faster
MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def source_faults(name, source):
    """(line, sentence) for each fault of any source file."""
    lines = source.splitlines()
    if LICENCE not in "\n".join(lines[:2]):
        yield 1, "the SPDX licence line is not among the first two lines"
    for number, line in enumerate(lines, 1):
        if name.endswith(tree.CPP) and len(line) > WIDEST:
            yield number, f"{len(line)} columns, expected at most {WIDEST}"
        if not name.startswith("scripts/lint/") and MARKS.search(line):
            yield number, f"marker of unfinished work: {MARKS.search(line).group()}"


def script_faults(source, executable):
    """(line, sentence) if a file names its interpreter but cannot be executed: a test that calls it would not start."""
    if source.startswith("#!") and not executable:
        yield 1, "a script that is not executable; run chmod +x"


def length_advice(lengths):
    """(name, sentence) for each header that is longer than most, and if most are; `lengths` maps names to lines."""
    for name, lines in lengths.items():
        if lines > LONGEST:
            yield name, f"{lines} lines, expected at most {LONGEST}"
    middle = median(lengths.values()) if lengths else 0
    if middle >= LONGEST_MEDIAN:
        yield "include", f"the median header has {middle:.0f} lines, expected less than {LONGEST_MEDIAN}"


def header_faults(source, name=""):
    """(line, sentence) for each fault of a header of the library."""
    lines = source.splitlines()
    if len(lines) < 2 or not re.match(r"//+ \S", lines[1]):
        yield 2, "the second line is not a comment that describes the header"
    for number, line in enumerate(lines, 1):
        if re.search(r'"\)? \+ ', line):
            yield number, "g++ 12 warns at -O3 of \"...\" + std::string; use sentence(...) or append"
    if "#pragma once" not in lines:
        yield 1, "no #pragma once"
    for number, line in enumerate(lines, 1):
        slow = re.match(r"\s*#\s*include\s*<(\w+)>", line)
        if slow and slow.group(1) in SLOW and not (slow.group(1) == "memory" and name.startswith(SHARING)):
            yield number, f"<{slow.group(1)}> is slow to compile"


def guard_faults(source):
    """(line, sentence) unless a header includes the guard first, directly or through another header."""
    first = re.search(r"^[ \t]*#[ \t]*include[ \t]*(\S+)", source, re.M)
    if not first or not first[1].startswith("<spar/"):
        yield 1, f"the first include is no header of spar; expected <{GUARD}> or a header that includes it first"


def namespace_faults(source, version):
    """(line, sentence) for each namespace of spar that is opened without the inline namespace of the version."""
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(rf"\s*namespace spar(?!::inline {version}\b|::perf\b)(::| )", line):  # perf belongs to spar_perf
            yield number, f"a namespace without the version; expected namespace spar::inline {version}"


def namespace_of(source):
    """The inline namespace of the version, by the text of version.hpp."""
    return "v" + "_".join(re.findall(r"#define SPAR_VERSION_(?:MAJOR|MINOR) (\d+)", source))


def included(sources, root):
    """The headers of the library that `root` includes, also by way of others; `sources` maps names to texts."""
    found, new = set(), [root]
    while new:
        name = new.pop()
        if name in found or name not in sources:
            continue
        found.add(name)
        new += [f"include/{path}" for path in re.findall(r"#\s*include\s*<(spar/[^>]+)>", sources[name])]
    return found


def algorithm_faults(sources):
    """(name, line, sentence) for each header that adds all of <algorithm> to every program."""
    if ROOT_HEADER not in sources:
        yield ROOT_HEADER, 0, "no such header"
    for name in sorted(included(sources, ROOT_HEADER) - {ALGOBASE}):
        for number, line in enumerate(sources[name].splitlines(), 1):
            if re.match(r"\s*#\s*include\s*<algorithm>", line):
                yield name, number, f"<algorithm> is slow to compile; include <{ALGOBASE[8:]}>"


def check():
    headers, version = {}, namespace_of(tree.text("include/spar/version.hpp"))
    for name in tree.files(*tree.CPP, ".py", ".cmake", ".cmake.in", "CMakeLists.txt"):
        source = tree.text(name)
        executable = os.access(tree.ROOT / name, os.X_OK)
        for line, sentence in [*source_faults(name, source), *script_faults(source, executable)]:
            yield name, line, sentence
        if name.endswith(tree.CPP):
            yield from ((name, *fault) for fault in namespace_faults(source, version))
        if name.startswith("include/"):
            headers[name] = source
            if name != f"include/{GUARD}" and not name.endswith(".h"):  # the headers for C include none for C++
                yield from ((name, *fault) for fault in guard_faults(source))
            for line, sentence in header_faults(source, name):
                yield name, line, sentence
    yield from algorithm_faults(headers)
    for name, sentence in length_advice({name: source.count("\n") for name, source in headers.items()}):
        tree.advise(name, 1, sentence)


def self_test():
    head = f"// {LICENCE}\n// A header.\n"
    good = head + "#pragma once\n#include <vector>\n"
    yield "rejected a good header", not list(header_faults(good)) and not list(source_faults("a.hpp", good))
    yield "no advice on 451 lines", [name for name, _ in length_advice({"a": 1, "b": 451, "c": 1})] == ["b"]
    yield "no advice on a median of 150 lines", [name for name, _ in length_advice({"a": 150})] == ["include"]
    yield "advice on 450 lines", not list(length_advice({"a": 1, "b": 450, "c": 1}))
    yield "accepted a header without the guard", bool(list(guard_faults(good)))
    yield "rejected a header with the guard", not list(guard_faults(f"#include <{GUARD}>\n#include <vector>\n"))
    yield "accepted a missing #pragma once", bool(list(header_faults(head + "#include <vector>\n")))
    yield "accepted a missing description", bool(list(header_faults(f"// {LICENCE}\n#pragma once\n")))
    added = good + 'auto text = (first ? "" : ", ") + name;\n'
    yield "accepted a literal to which a string is added", bool(list(header_faults(added)))
    yield "accepted a namespace without the version", bool(list(namespace_faults("namespace spar {\n", "v0_1")))
    yield "accepted another version", bool(list(namespace_faults("namespace spar::inline v0_1::detail {\n", "v0_12")))
    yield "rejected the version", not list(namespace_faults("namespace spar::inline v0_1 {\n", "v0_1"))
    defined = "#define SPAR_VERSION_MAJOR 1\n#define SPAR_VERSION_MINOR 12\n#define SPAR_VERSION_PATCH 3\n"
    yield "misread the version", namespace_of(defined) == "v1_12"
    yield "accepted a slow include", bool(list(header_faults(good + "#include <iostream>\n")))
    root = {ROOT_HEADER: "#include <spar/a.hpp>\n", "include/spar/a.hpp": "#include <algorithm>\n"}
    yield "accepted <algorithm> in a header of every program", bool(list(algorithm_faults(root)))
    yield "rejected <algorithm> elsewhere", not list(algorithm_faults({**root, ROOT_HEADER: ""}))
    yield "accepted a missing licence line", bool(list(source_faults("a.cpp", "int a;\n")))
    yield "accepted a script that is not executable", bool(list(script_faults("#!/bin/sh\n", False)))
    yield "rejected an executable script", not list(script_faults("#!/bin/sh\n", True))
    yield "rejected a source that is not executable", not list(script_faults(good, False))
    yield "accepted a long line", bool(list(source_faults("a.cpp", head + "/" * 121 + "\n")))
    yield "accepted a marker of unfinished work", bool(list(source_faults("a.cpp", head + "// TODO: all\n")))


tree.main(check, self_test)
