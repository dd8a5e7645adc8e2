#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds a small hyperplane through the command line: exit status, table, the keys and figures of the JSON, the plot.

hyperplane_test.py openmpi|mpich PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from running import ROOT, expect, failures, flavour, on_ranks, program, run

KEYS = """participation ranks step imbalance delay nap steps batch dimension seconds steps_per_second final_loss
fresh_mean stale_max computing_seconds calling_seconds ranks_agree history""".split()
STEP, DELAY, STEPS = 4e-3, 8e-3, 96


with tempfile.TemporaryDirectory() as directory:
    results, plot = pathlib.Path(directory) / "results.json", pathlib.Path(directory) / "plot.svg"
    small = f"--step 4ms --delay 8ms --steps {STEPS} --dimension 256 --batch 8 --rate 0.05 --validation 500".split()
    script = [ROOT / "scripts/hyperplane", "--mpi", flavour]

    # Every participation, through the script.
    every = ["everyone", "solo", "majority", "quorum:3"]
    run(*script, "--ranks", 4, *small, "--participation", ",".join(every), "--json", results, says="to everyone")
    rows = json.loads(results.read_text()) if results.exists() else []
    expect([row["participation"] for row in rows] == every, f"the JSON has {rows}")
    for row in rows:
        name, history = row["participation"], row["history"]
        expect(set(KEYS) == set(row), f"{name} has the keys {sorted(row)}")
        expect(row["ranks_agree"] is True, f"{name}: the ranks' weights differ")
        expect((row["ranks"], row["step"], row["delay"], row["steps"]) == (4, STEP, DELAY, STEPS), f"{name}: {row}")
        expect([h["step"] for h in history] == list(range(0, STEPS + 1, 2)), f"{name} has the history {history}")
        expect(history == sorted(history, key=lambda h: h["seconds"]), f"{name}: time goes back in {history}")
        expect(history[0]["loss"] > 200 and 3 < row["final_loss"] < 7, f"{name} learns little: {history}")
        expect(history[-1]["loss"] == row["final_loss"], f"{name} ends elsewhere than its history")
        expect(abs(row["steps_per_second"] * row["seconds"] - STEPS) < 1e-6, f"{name}: {row}")
        # With `everyone` all ranks wait for each step's delay; otherwise a rank waits at least for its own delays.
        least = STEPS * (STEP + DELAY) if name == "everyone" else STEPS * (STEP + DELAY / 4)
        expect(row["seconds"] >= least, f"{name} takes {row['seconds']} s, less than {least}")
        fresh = {"everyone": 4, "quorum:3": 3}.get(name, 1)
        expect(fresh <= row["fresh_mean"] <= (4 if fresh == 4 else 3.99), f"{name}: {row['fresh_mean']} are fresh")
        expect((row["stale_max"] == 0) == (name == "everyone"), f"{name}: stale by {row['stale_max']}")
    draw = subprocess.run([ROOT / "tools/plot_training", results, "--out", plot], capture_output=True, text=True)
    if draw.returncode != 77:  # 77: matplotlib is not installed
        expect(draw.returncode == 0 and "</svg>" in plot.read_text(), f"the plot: {draw.stderr}")

    # Two late ranks, and delays as in a cloud: with `everyone`, all ranks wait for each step's longest delay.
    for imbalance in ("random:2", "cloud"):
        run(*on_ranks(4), *small, "--imbalance", imbalance, "--participation", "everyone,solo", "--json", results)
        for row in json.loads(results.read_text()):
            late = 2 / 4 if imbalance == "random:2" and row["participation"] == "solo" else 1
            least = STEPS * (STEP + (DELAY * late if imbalance == "random:2" else 0))
            expect(row["ranks_agree"] and row["imbalance"] == imbalance, f"{imbalance}: {row}")
            expect(row["seconds"] >= least, f"{imbalance}: {row['seconds']} s, less than {least}")

    # With one participation the JSON is an object; a single rank waits for no other.
    run(*on_ranks(1), *small, "--participation", "solo", "--json", results)
    alone = json.loads(results.read_text())
    expect(alone["fresh_mean"] == 1 and alone["stale_max"] == 0, f"a single rank: {alone}")

    # Errors in the arguments.
    run(*script, "--ranks", "none", status=2, says="--ranks must be a positive number, not none")
    run(*on_ranks(2), "--participation", "quorum:3", status=2, says="the quorum is 3; expected 1 to 2")
    for arguments, says in {
        "--participation fast": "there is no participation 'fast'; there are: everyone, solo, majority, quorum:Q",
        "--participation solo,quorum:x": "a quorum must be a number of ranks, not 'x'",
        "--participation quorum:0": "the quorum is 0; expected 1 to 1",
        "--step 32": "--step must be from 0s to 60s, like 1.5s, 32ms or 300us, not '32'",
        "--delay 2h": "--delay must be from 0s to 60s, like 1.5s, 32ms or 300us, not '2h'",
        "--imbalance random:2": "--imbalance random:N must have 1 to 1 late ranks, not 'random:2'",
        "--imbalance random:": "late ranks, not 'random:'",
        "--imbalance one": "--imbalance must be none, random:N, rotating or cloud, not 'one'",
        "--delay 5ms:1ms": "--delay must give the shortest delay first, not '5ms:1ms'",
        "--nap=-1ms": "not '-1ms'",
        "--rate nan": "'nan' is not a finite number above 0",
        "--rate inf": "'inf' is not a finite number above 0",
        "--steps 0": "--steps: Value 0",
        "--batch 64 --points 32": "a batch of 64 points is larger than all 32 training points",
        "--json /nonexistent/results.json": "/nonexistent/results.json cannot be written",
    }.items():
        run(program, *arguments.split(), status=2, says=says)

sys.exit(1 if failures else 0)
