#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""dependencies_test.py BUILD: checks which tests scripts/dependencies.py names, against the compiler's own lists."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "scripts"))
import dependencies  # noqa: E402


def expect(condition, what):
    if not condition:
        sys.exit(what)


def printed(*arguments):
    return subprocess.run([ROOT / "scripts/dependencies.py", *arguments], capture_output=True, text=True)


build = sys.argv[1]
none = printed(build, "storage/no_such_header.hpp")
expect(none.returncode != 0 and "no header storage/no_such_header.hpp" in none.stderr, f"accepted no header: {none}")

programs, tests = printed(build, "storage/kernel/merge_many.hpp").stdout.splitlines()
expect("tests/storage_kernel_merge_many_test" in programs.split(), f"no program: {programs}")
expect("storage.kernel_merge_many" in tests.split(), f"no test: {tests}")
expect("topology.tree" not in tests.split(), "a test that does not include the header")
by_path = printed(build, "include/spar/storage/kernel/merge_many.hpp").stdout.splitlines()
expect(by_path == [programs, tests], "another path of the header has other tests")

every = dependencies.programs(str(Path(build).resolve()))
expect(len(every) > 100, f"only {len(every)} programs")
inner = printed(build, "core/error.hpp").stdout.splitlines()[0].split()
expect(len(inner) > 100, f"only {len(inner)} programs include core/error.hpp")

# Without precompiled headers, the compiler names the same headers.
for name in ("topology/tree_test.cpp", "storage/wire_test.cpp", "runtime/task_test.cpp"):
    source = ROOT / "tests" / name
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-MM", f"-I{ROOT}/include", f"-I{ROOT}/tests", source]
    rule = subprocess.run(command, capture_output=True, check=True, text=True).stdout.replace("\\\n", " ")
    compiled = {Path(word).resolve() for word in rule.split(":", 1)[1].split()}
    found = dependencies.included(source)
    expect({f for f in compiled if f.is_relative_to(ROOT)} <= found, f"{name}: headers that only the compiler names")
    extra = {str(f.relative_to(ROOT)) for f in found - compiled}
    expect(len(extra) <= 2, f"{name}: headers that the compiler does not name: {extra}")

# The closest test of a header comes first.
sources = list((ROOT / "tests").rglob("*_test.cpp"))
named = (("topology/tree.hpp", "topology/tree"), ("collective/topk/pruned_owners.hpp", "system/pruned_owners"))
for header, first in named:
    closest = dependencies.closest_first(sources, dependencies.header_named(header))
    expect(closest[0] == ROOT / f"tests/{first}_test.cpp", f"{header}: {closest[0]}")
