#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Usage: versions_test.py COMPILER

A program contains the headers, and a copy of them with the next minor version, in objects of one executable and in two
shared libraries; if SPAR_FULL is set, also in shared libraries with hidden names. Both versions work, and none catches
errors of the other. A function with a type of one version is undefined for a caller with the other version."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests/compiled/version.cpp"
MAIN = """
namespace first { int reduce(); void fail(); bool catches(void (*)()); }
namespace second { int reduce(); void fail(); bool catches(void (*)()); }
int main() {
  if (first::reduce() != 3 || second::reduce() != 3) return 1;
  if (!first::catches(first::fail) || !second::catches(second::fail)) return 2;
  return first::catches(second::fail) || second::catches(first::fail) ? 3 : 0;
}
"""
CALLER = """
#include <spar/core/error.hpp>
int code_of(const spar::error&);
int main() { return code_of(spar::timeout("a test")) == 3 ? 0 : 1; }
"""


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    return done.returncode, f"{' '.join(map(str, command))}: status {done.returncode}: {done.stdout}{done.stderr}"


def expect(*command, cwd):
    status, text = run(*command, cwd=cwd)
    if status != 0:
        sys.exit(f"FAILED: {text}")


def next_version(to):
    """Copies the headers; the copies have the next minor version. Returns the namespaces of both versions."""
    macros = (ROOT / "include/spar/version.hpp").read_text(encoding="utf-8")
    major, minor = (int(re.search(rf"#define SPAR_VERSION_{part} (\d+)", macros)[1]) for part in ("MAJOR", "MINOR"))
    old, new = f"v{major}_{minor}", f"v{major}_{minor + 1}"
    shutil.copytree(ROOT / "include", to)
    for header in to.rglob("*.hpp"):
        text = header.read_text(encoding="utf-8").replace(old, new)
        header.write_text(text.replace(f"SPAR_VERSION_MINOR {minor}", f"SPAR_VERSION_MINOR {minor + 1}"),
                          encoding="utf-8")
    return old, new


def test(compiler, work):
    old, new = next_version(work / "next")
    flags = ["-std=c++20", "-O0", "-fPIC", "-pthread"]
    parts = [("first", ROOT / "include"), ("second", work / "next")]
    (work / "main.cpp").write_text(MAIN)
    (work / "caller.cpp").write_text(CALLER)
    hidden = [[], ["-fvisibility=hidden"]] if os.environ.get("SPAR_FULL") else [[]]
    for visibility in hidden:
        for part, include in parts:
            expect(compiler, *flags, *visibility, f"-DPART={part}", f"-I{include}", "-c", SOURCE, "-o", f"{part}.o",
                   cwd=work)
            expect(compiler, "-shared", f"{part}.o", "-o", f"lib{part}.so", "-pthread", cwd=work)
        for linked in (["first.o", "second.o"], ["-L.", "-lfirst", "-lsecond", "-Wl,-rpath,$ORIGIN"]):
            expect(compiler, "main.cpp", *linked, "-pthread", "-o", "main", cwd=work)
            expect("./main", cwd=work)
    call = [compiler, *flags, "caller.cpp", "first.o", "-o", "caller"]
    expect(*call, f"-I{ROOT / 'include'}", cwd=work)
    expect("./caller", cwd=work)
    status, text = run(*call, f"-I{work / 'next'}", cwd=work)
    if status == 0 or not re.search(rf"undefined (reference|symbol).*code_of\(spar::{new}::error const&\)", text):
        sys.exit(f"FAILED: expected an undefined function of {new}, which {old} defines: {text}")


with tempfile.TemporaryDirectory() as name:
    test(sys.argv[1], pathlib.Path(name))
