#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs scripts/smpi on 16 simulated hosts: usage, right results, repeatable virtual times."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

SMPI = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "smpi"
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def run(*arguments):
    return subprocess.run([SMPI, *arguments], capture_output=True, text=True, timeout=280)


for arguments, says in {
    "--ranks": "--ranks needs a value",
    "--ranks 0": "not 0",
    "--ranks=many": "not many",
    "--platform torus": "not torus",
}.items():
    done = run(*arguments.split())
    expect(done.returncode == 2, f"{arguments}: status {done.returncode}, not 2: {done.stderr}")
    expect(says in done.stderr and len(done.stderr.splitlines()) == 1, f"{arguments}: does not say '{says}'")

if not shutil.which("smpicxx"):  # the script would install SimGrid
    print("skipped: SimGrid's smpicxx is not installed")
    sys.exit(1 if failures else 77)

systems = ["sparcml", "rec_doubling", "ring", "mpi"]
times = {}
with tempfile.TemporaryDirectory() as directory:
    for platform in "fat-tree", "dragonfly", "dragonfly":
        path = pathlib.Path(directory) / "rows.json"
        options = f"--platform {platform} --systems {','.join(systems)} --count 100K --iterations 2 --warmup 1 --check"
        done = run("--ranks", "16", *options.split(), "--json", str(path))
        expect(done.returncode == 0, f"{platform}: status {done.returncode}: {done.stdout}{done.stderr}")
        rows = {row["system"]: row for row in json.loads(path.read_text() or "[]")} if path.exists() else {}
        expect(sorted(rows) == sorted(systems), f"{platform}: rows of {set(rows)}")
        for row in rows.values():
            expect(row["correct"] is True and row["ranks"] == 16, f"{platform}: wrong: {row}")
            # Four rounds at 1 us, plus the bytes at 10 Gbit/s; there is no local work.
            least = 4 * 1e-6 + (row["words_sent"] or 0) * 4 / 1.25e9
            expect(least < row["seconds"] < 5e-3, f"{platform}: {row['system']} takes {row['seconds']} s")
            known = times.setdefault((platform, row["system"]), row["seconds"])
            expect(row["seconds"] == known, f"{platform}: {row['system']} takes {row['seconds']} s, before {known}")

done = run("--systems", "none")
expect(done.returncode == 2 and "none" in done.stderr, f"a wrong option of spar_perf: status {done.returncode}")
sys.exit(1 if failures else 0)
