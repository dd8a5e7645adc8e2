#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains on few words with the demo's model and batches: exit status, table, the keys and figures of the JSON.

langid_test.py openmpi|mpich PROGRAM
"""

import json
import pathlib
import re
import sys
import tempfile

from running import ROOT, expect, failures, flavour, on_ranks, program, run

LISTS = "american-english french ngerman spanish italian portuguese dutch polish".split()
KEYS = """accuracy_mpi accuracy_spar bytes_mpi bytes_spar communication_seconds_mpi communication_seconds_spar epochs
parameters ranks seconds_mpi seconds_spar""".split()
PARAMETERS = 8 << 20  # of 8 languages and 2^20 buckets

missing = [name for name in LISTS if not pathlib.Path("/usr/share/dict", name).exists()]
if missing:
    print(f"skipped: no word lists {', '.join(missing)} (scripts/setup demo installs them)")
    sys.exit(77)

with tempfile.TemporaryDirectory() as directory:
    results = pathlib.Path(directory) / "results.json"

    # The demo in 26 steps instead of 504: a step has the demo's size, and hardly fewer bytes.
    few = ["--limit", 2000, "--epochs", 2, "--json", results]
    printed = run(ROOT / "scripts/demo", "--mpi", flavour, *few, "maison", says="maison                 fr")
    row = json.loads(results.read_text()) if results.exists() else {}
    expect(set(KEYS) == set(row), f"the JSON has the keys {sorted(row)}")
    size = [row.get(name) for name in ("parameters", "ranks", "epochs")]
    expect(size == [PARAMETERS, 4, 2], f"the parameters, ranks and epochs are {size}")
    sent = row.get("bytes_mpi", 0), row.get("bytes_spar", 0)
    expect(sent[0] == 4 * 2 * PARAMETERS * 3 / 4, f"MPI sends {sent[0]} bytes a step")
    expect(0.1e6 < sent[1] <= 0.2e6, f"spar sends {sent[1]} bytes a step")
    learnt = {name: [] for name in ("MPI", "spar")}
    for name, percent in re.findall(r"^(MPI|spar) +epoch \d of 2: ([\d.]+) % of", printed, re.MULTILINE):
        learnt[name].append(float(percent) / 100)
    for name, accuracies in learnt.items():
        expect(len(accuracies) == 2 and 0.6 < accuracies[0] < accuracies[1] < 0.9, f"{name} learns {accuracies}")
        final = row.get(f"accuracy_{name.lower()}", 0)
        expect(abs(final - accuracies[-1]) < 1e-4, f"{name} ends with {final}, not with {accuracies}")
    apart = abs(row.get("accuracy_mpi", 0) - row.get("accuracy_spar", 1))
    expect(apart < 0.005, f"7 bits of the mantissa change the accuracy by {apart}")

    # A single rank sends nothing, with lists of its own.
    lists = [f"--list={name}=/usr/share/dict/{name}" for name in LISTS[:2]]
    run(*on_ranks(1), *lists, "--bits", 12, *few)
    row = json.loads(results.read_text())
    expect((row["parameters"], row["bytes_spar"]) == (2 << 12, 0), f"a single rank: {row}")

    # Errors in the arguments.
    run(ROOT / "scripts/demo", "--mpi", "none", status=2, says="--mpi must be openmpi or mpich, not 'none'")
    for arguments, says in {
        "--list en": "--list must be LANGUAGE=FILE, not 'en'",
        "--list en=a": "--list: got 1 language (en=a), expected at least 2",
        "--list en=a en=b": "--list names two lists for en: a and b",
        "--list en=/nonexistent fr=/nonexistent": "cannot read these word lists: /nonexistent, /nonexistent",
        "--list en=/dev/zero fr=/tmp": "cannot read these word lists: /dev/zero, /tmp",
        "--epochs 0": "--epochs",
        "--rate 0": "--rate",
        "--rate nan": "--rate",
        "--rate inf": "--rate",
        "--json /nonexistent/results.json": "/nonexistent/results.json cannot be written",
    }.items():
        run(program, *arguments.split(), status=2, says=says)

sys.exit(1 if failures else 0)
