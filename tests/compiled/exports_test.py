#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Usage: exports_test.py COMPILER LIBRARY

Links the archive of the compiled library into a shared library as CMake does. The shared library exports nothing but
names of spar. A program of two shared objects with hidden names that call the library, and of one that is compiled
from the headers alone, gets right sums, and errors that it catches by their types; so does one executable of objects of
both kinds with the archive."""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
compiler, archive = sys.argv[1:]


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as name:
    work = pathlib.Path(name)
    run(compiler, "-shared", "-o", "libspar.so", "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive",
        f"-Wl,--version-script={ROOT}/src/exports.map", "-pthread", cwd=work)
    names = run("nm", "-DC", "--defined-only", "libspar.so", cwd=work).splitlines()
    exported = [line.split(maxsplit=2)[2] for line in names]
    of_spar = re.compile(r"((typeinfo|typeinfo name|vtable) for )?spar::v0_1::|spar_\w+$")
    foreign = [symbol for symbol in exported if not of_spar.match(symbol)]
    if foreign or not {"spar_allreduce", "typeinfo for spar::v0_1::invalid_argument"} <= set(exported):
        sys.exit(f"FAILED: {len(exported)} names, of which not spar's: {foreign[:10]}")

    for part in ("first", "second", "third"):
        kind = [] if part == "third" else ["-DSPAR_COMPILED"]
        run(compiler, "-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden", f"-I{ROOT}/include", *kind, f"-DPART={part}",
            "-c", ROOT / "tests/compiled/part.cpp", "-o", f"{part}.o", cwd=work)
        library = [] if part == "third" else ["libspar.so", "-Wl,-rpath,$ORIGIN"]
        run(compiler, "-shared", f"{part}.o", *library, "-pthread", "-o", f"lib{part}.so", cwd=work)
    (work / "main.cpp").write_text(
        "int first(); int second(); int third();\n"
        "int main() { return first() == 33 && second() == 33 && third() == 33 && first() == 33 ? 0 : 1; }\n")
    shared = ["-L.", "-lfirst", "-lsecond", "-lthird", "libspar.so", "-Wl,-rpath,$ORIGIN"]
    for linked in (shared, ["first.o", "second.o", "third.o", archive], ["third.o", "second.o", "first.o", archive]):
        run(compiler, "main.cpp", *linked, "-pthread", "-o", "main", cwd=work)
        run("./main", cwd=work)
