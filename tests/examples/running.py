# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shared by the tests of the examples, which are run as NAME_test.py openmpi|mpich PROGRAM."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ |= {"SPAR_YIELD": "always", "SPAR_MPI_TIMEOUT": "100"}
flavour, program = sys.argv[1:]
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def run(*command, status=0, says=""):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    line = " ".join(done.args)
    expect(done.returncode == status, f"{line}: status {done.returncode}, not {status}: {done.stdout}{done.stderr}")
    expect(says in done.stdout + done.stderr, f"{line}: does not say '{says}' but {done.stdout}{done.stderr}")
    return done.stdout


def on_ranks(ranks):
    return [ROOT / "scripts/mpirun", flavour, ranks, program]
