#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains on few and short sequences through the command line: exit status, table, the keys and figures of the JSON.

sequences_test.py openmpi|mpich PROGRAM
"""

import json
import pathlib
import sys
import tempfile

from running import ROOT, expect, failures, flavour, on_ranks, program, run

KEYS = """participation ranks simulated frame imbalance delay tau average epochs steps batch seeds median spread seconds
steps_per_second accuracy_mean accuracy_min accuracy_max fresh_mean stale_max frames_min frames_max frames_mean
frames_deviation ranks_agree history""".split()


def train(results, *options, command=(program,)):
    run(*command, *options, "--json", results, says="to everyone")
    rows = {row["participation"]: row for row in json.loads(results.read_text())}
    for name, row in rows.items():
        expect(set(KEYS) == set(row) and row["ranks_agree"] is True, f"{name}: {row}")
        history = row["history"]
        expect([h["epoch"] for h in history] == list(range(row["epochs"] + 1)), f"{name} has the history {history}")
        expect(history == sorted(history, key=lambda h: h["seconds"]), f"{name}: time goes back in {history}")
        expect(abs(row["steps_per_second"] * row["seconds"] - row["steps"]) < 1e-6, f"{name}: {row}")
        expect(row["stale_max"] == 0 or name != "everyone", f"{name}: stale by {row['stale_max']}")
        expect(row["fresh_mean"] <= row["ranks"] and (name != "everyone" or row["fresh_mean"] == row["ranks"]),
               f"{name}: {row['fresh_mean']} are fresh")
    return rows


with tempfile.TemporaryDirectory() as directory:
    results = pathlib.Path(directory) / "results.json"
    few = "--median 60 --sequences 256 --validation 64 --batch 4 --units 4 --epochs 2".split()
    every = ["--participation", "everyone,solo,majority,quorum:3"]

    # Over MPI, through the script: 4 ranks in 32 steps, as long as their frames.
    script = [ROOT / "scripts/sequences", "--mpi", flavour, "--ranks", 4]
    rows = train(results, *few, *every, "--frame", "20us", "--average", 1, command=script)
    expect(list(rows) == ["everyone", "solo", "majority", "quorum:3"], f"the JSON has {list(rows)}")
    for name, row in rows.items():
        expect((row["ranks"], row["steps"], row["simulated"]) == (4, 32, False), f"{name}: {row}")
        expect(row["seconds"] >= 32 * row["frames_mean"] * 20e-6, f"{name} takes {row['seconds']} s")
        expect(row["frames_min"] < row["frames_mean"] < row["frames_max"], f"{name}: {row}")

    # Simulated ranks: the same results in every run, also of the time. The lengths alone make ranks late.
    virtual = ["--simulate", 8, *few, *every]
    first, second = train(results, *virtual), train(results, *virtual)
    expect(first == second, f"two runs differ: {first}, {second}")
    expect(first["everyone"]["seconds"] > 1.2 * first["majority"]["seconds"] > 1.2 * first["solo"]["seconds"],
           f"virtual seconds: {first}")
    expect(first["solo"]["stale_max"] > first["majority"]["stale_max"] > 0, f"nobody is late: {first}")
    expect(first["quorum:3"]["fresh_mean"] >= 3, f"a quorum of 3: {first['quorum:3']}")

    # Sequences of one length and late ranks: every step of `everyone` waits for the delay, up to the latency.
    late = "--spread 0 --frame 10us --imbalance random:2 --delay 10ms".split()
    row = train(results, *virtual, *late)["everyone"]
    expect(row["frames_min"] == row["frames_max"] == 240 and row["frames_deviation"] == 0, f"equal lengths: {row}")
    exact = row["steps"] * (240 * 10e-6 + 10e-3)
    expect(exact <= row["seconds"] < 1.01 * exact, f"{row['seconds']} s instead of {exact}")

    # Synchronous training learns, from other weights with each seed.
    learn = "--simulate 2 --participation everyone --median 29 --spread 0 --sequences 512 --epochs 24 --seeds 2".split()
    row = train(results, *learn, "--validation", 256)["everyone"]
    expect(0.5 < row["accuracy_min"] <= row["accuracy_mean"] <= row["accuracy_max"], f"learns little: {row}")
    expect(row["history"][0]["accuracy"] < 0.4, f"knows the classes before it learns: {row}")

    # Errors in the arguments.
    run(*on_ranks(2), "--simulate", 4, status=2, says="--simulate needs one process, which simulates all ranks")
    for arguments, says in {
        "--participation fast": "there is no participation 'fast'; there are: everyone, solo, majority, quorum:Q",
        "--simulate 4 --participation quorum:5": "the quorum is 5; expected 1 to 4",
        "--simulate 4 --imbalance random:5": "--imbalance random:N must have 1 to 4 late ranks, not 'random:5'",
        "--simulate 64 --sequences 100": "--sequences: a step of 64 ranks needs 512 sequences, got 100",
        "--frame 20": "--frame must be from 0s to 60s, like 1.5s, 32ms or 300us, not '20'",
        "--median 28": "--median: Value 28",
        "--spread 2.1": "--spread: Value 2.1",
        "--spread nan": "'nan' is not a finite number",
        "--tau -1": "--tau: Value -1",
        "--delay 5ms": "--delay requires --imbalance",
        "--rate nan": "'nan' is not a finite number above 0",
        "--json /nonexistent/results.json": "/nonexistent/results.json cannot be written",
    }.items():
        run(program, *arguments.split(), status=2, says=says)
    run(program, *few, "--frame", "0s", "--json", "/dev/full", status=1, says="/dev/full cannot be written")

sys.exit(1 if failures else 0)
