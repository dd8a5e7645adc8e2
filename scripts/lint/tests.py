#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a CMakeLists.txt names every tests/**/*_test.cpp and bench/*.cpp, that each test has an assertion, and
that tests with cases for --full alone are EXTENDED, because other tests never compile these cases."""

import re

import tree

ASSERTION = re.compile(r"\b(EXPECT_|ASSERT_|static_assert|FAIL\(|int main\(|INSTANTIATE_|\w*check_?\w*\()")


def listed(name, lists):
    """Whether a line names the file `name` (tests/a/b_test.cpp), as a/b, as a/b_test.cpp or as b_test.cpp."""
    path = re.sub(r"^(tests|bench)/", "", name)
    stem = re.sub(r"(_test)?\.cpp$", "", path)
    words = set(re.findall(r"[\w./]+", re.sub(r"#[^\n]*", "", lists)))
    return bool(words & {path, stem, path.rsplit("/", 1)[-1]})


def extended(name, lists):
    """Whether the test of the file `name` is EXTENDED."""
    path = re.escape(re.sub(r"^tests/|_test\.cpp$", "", name))
    return re.search(rf"\({path} [^)]*\bEXTENDED\b", lists) is not None


def check():
    lists = "\n".join(tree.text(n) for n in tree.files("CMakeLists.txt") if n.startswith(("tests/", "bench/")))
    for name in tree.files(".cpp"):
        test = name.startswith("tests/") and name.endswith("_test.cpp")
        if (test or name.startswith("bench/")) and not listed(name, lists):
            yield name, 1, "no CMakeLists.txt names this file, so it never runs"
        if name.endswith("_test.cpp") and not ASSERTION.search(tree.code(tree.text(name))):
            yield name, 1, "test without an assertion"
        if test and re.search("SPAR_ALL_CASES|compiles_all_cases", tree.text(name)) and not extended(name, lists):
            yield name, 1, "test with cases for --full, but not EXTENDED in tests/CMakeLists.txt"


def self_test():
    lists = "spar_add_test(core/op)\n# spar_add_test(core/old)\nspar_add_test(model/x SOURCES model/cost_test.cpp)\n"
    yield "rejected a listed test", listed("tests/core/op_test.cpp", lists)
    yield "rejected a listed source", listed("tests/model/cost_test.cpp", lists)
    yield "rejected an EXTENDED test", extended("tests/core/op_test.cpp", "spar_add_test(core/op LARGE EXTENDED)\n")
    yield "accepted a test that is not EXTENDED", not extended("tests/core/op_test.cpp", lists + "x(core/o EXTENDED)")
    yield "accepted an unlisted test", not listed("tests/runtime/task_test.cpp", lists)
    yield "accepted a test that only a comment lists", not listed("tests/core/old_test.cpp", lists)


tree.main(check, self_test)
