#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Usage: fortran_test.py FOLDER LIBRARY [FLAVOUR LIBRARY | ucx LIBRARY]...

Compiles the Fortran module in FOLDER and its test with gfortran, and links them with the compiled library. Then builds
examples/fortran/charge.f90 with the compiler of each MPI library, and runs it on three ranks; over UCX, ucx_test.f90.
Exit status 77 without gfortran."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARNINGS = ["-std=f2018", "-Wall", "-Wextra", "-Wno-compare-reals", "-Werror", "-frecursive", "-O1"]
folder, library, *flavours = sys.argv[1:]

failures = 0


def expect(holds, text):
    global failures
    if not holds:
        print("FAILED:", text)
        failures += 1


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


if not shutil.which("gfortran"):
    print("skipped: no gfortran")
    sys.exit(77)

with tempfile.TemporaryDirectory() as name:
    work = pathlib.Path(name)
    module = pathlib.Path(folder) / "spar.f90"
    # gfortran keeps lengths of texts that functions return in memory that threads share.
    run("gfortran", "-frecursive", "-fdump-tree-original", "-c", module, "-o", "module.o", cwd=work)
    tree = next(work.glob("*.original")).read_text()
    expect(not re.search(r"static integer\(kind=8\) slen", tree), "the module keeps a length between calls")

    status, said = run("gfortran", *WARNINGS, module, ROOT / "tests/fortran/interface_test.f90", library, "-lstdc++",
                       "-lpthread", "-o", "interface", cwd=work)
    expect(status == 0, said)
    if status == 0:
        status, said = run("./interface", cwd=work)
        expect(status == 0 and said.strip().endswith("all checks hold"), said)

    for flavour, transport in zip(flavours[::2], flavours[1::2]):
        if flavour == "ucx":
            status, said = run("gfortran", *WARNINGS, "module.o", ROOT / "src/fortran/spar_ucx.f90",
                               ROOT / "tests/fortran/ucx_test.f90", transport, library, "-lucp", "-lucs", "-lstdc++",
                               "-ldl", "-lpthread", "-o", "ucx", cwd=work)
            expect(status == 0, said)
            if status == 0:
                status, said = run(ROOT / "scripts/ranks", 3, work / "ucx", cwd=work)
                expect(status == 0 and "all checks hold" in said, f"ucx: {status}: {said}")
            continue
        compiler = shutil.which(f"mpif90.{flavour}")
        if not compiler:
            print(f"skipped: no mpif90.{flavour}")
            continue
        status, said = run(compiler, "-w", "-std=f2018", module, ROOT / "src/fortran/spar_mpi.f90",
                           ROOT / "examples/fortran/charge.f90", transport, library, "-lstdc++", "-lpthread", "-o",
                           "charge", cwd=work)
        expect(status == 0, said)
        if status == 0:
            status, said = run(ROOT / "scripts/mpirun", flavour, 3, work / "charge", cwd=work)
            expect(status == 0 and re.search(r"total charge: 60000\.000\b", said), f"{flavour}: {status}: {said}")

sys.exit(1 if failures else 0)
