# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a function of a test in processes that scripts/ranks starts."""

import importlib
import os
import pathlib
import subprocess
import sys

import spar

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_processes(n, function, *arguments, expect=0, keep_going=False, **environment):
    """Calls function(*arguments) of a test module in `n` processes. Arguments are texts. Returns what the processes
    have written, and checks the exit status. With `keep_going`, a rank that fails ends no other."""
    option = ["--keep-going"] if keep_going else []
    program = [sys.executable, __file__, function.__module__, function.__name__]
    command = ["scripts/ranks", *option, str(n), *program, *arguments]
    variables = {"PYTHONPATH": str(pathlib.Path(spar.__file__).parents[1]), "SPAR_DEADLINE": "60"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | variables | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == expect, done.stdout
    return done.stdout


if __name__ == "__main__":
    module, name, *arguments = sys.argv[1:]
    getattr(importlib.import_module(module), name)(*arguments)
