#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains on small data sets through the command line: exit status, table, the keys and figures of the JSON.

linear_test.py openmpi|mpich PROGRAM
"""

import bz2
import gzip
import json
import lzma
import pathlib
import sys
import tempfile

from running import ROOT, expect, failures, flavour, on_ranks, program, run

KEYS = """accuracy bytes_per_step communicating_seconds computing_seconds epoch_seconds epochs features history loss
method model nonzeros_per_sample ranks ranks_agree samples set steps steps_of_a_pass system waiting_seconds
weights_checksum""".split()
FEATURES = 3231961  # of URL

with tempfile.TemporaryDirectory() as directory:
    folder = pathlib.Path(directory)
    results = folder / "results.json"

    def rows_of(*options, ranks=3):
        run(*on_ranks(ranks), *options, "--json", results)
        return {row["system"]: row for row in json.loads(results.read_text())} if not failures else {}

    # SGD: the same losses with all systems; dense MPI sends at least ten times as much.
    sums = "mpi,sparcml,split_allgather,split_allgather+coded,rec_doubling"
    script = [ROOT / "scripts/linear", "--mpi", flavour, "--ranks", 4, "--json", results]
    run(*script, "--scale", 0.003, "--epochs", 2, "--batch", 300, "--systems", sums, says="MB / step")
    rows = {row["system"]: row for row in json.loads(results.read_text())} if results.exists() else {}
    expect(list(rows) == sums.split(","), f"the systems are {list(rows)}")
    dense = rows.get("mpi", {})
    for name, row in rows.items():
        expect(set(row) == {*KEYS, "batch_losses"}, f"{name}: the JSON has the keys {sorted(row)}")
        expect((row["samples"], row["features"], row["steps"], row["ranks"]) == (7188, FEATURES, 6, 4), f"{row}")
        expect(row["ranks_agree"], f"{name}: the ranks differ")
        expect(len(row["batch_losses"]) == 12, f"{name}: {len(row['batch_losses'])} losses")
        apart = max(abs(a - b) for a, b in zip(row["batch_losses"], dense["batch_losses"]))
        expect(apart < 1e-6, f"{name}: the losses differ by {apart}")
        expect(row["loss"] < row["history"][0]["loss"] < 0.6932, f"{name} learns {row['history']}")
        if name != "mpi":
            expect(10 * row["bytes_per_step"] < dense["bytes_per_step"], f"{name} sends {row['bytes_per_step']} bytes")
    expect(dense.get("bytes_per_step") == 2 * 4 * FEATURES * 3 / 4, f"MPI sends {dense.get('bytes_per_step')} bytes")

    # A support vector machine on a single rank, which sends nothing.
    rows = rows_of("--model", "svm", "--scale", 0.0005, "--systems", "split_allgather", "--epochs", 3, ranks=1)
    row = rows.get("split_allgather", {"history": [{"loss": 0}], "loss": 0, "bytes_per_step": 1})
    expect(row["loss"] < row["history"][0]["loss"] < 1 and row["bytes_per_step"] == 0, f"an SVM learns {row}")

    # Coordinate descent: the same bits; few bytes.
    rows = rows_of("--method", "scd", "--scale", 0.0005, "--steps", 5)
    if rows:
        dense, sparse = rows["mpi"], rows["allgather"]
        expect(sparse["weights_checksum"] == dense["weights_checksum"], f"the weights differ: {rows}")
        expect(sparse["loss"] == dense["loss"] < 0.6932, f"coordinate descent learns {rows}")
        expect(dense["bytes_per_step"] == 4 * FEATURES * 2 / 3, f"MPI sends {dense['bytes_per_step']} bytes")
        expect(1600 <= sparse["bytes_per_step"] < 4000, f"spar sends {sparse['bytes_per_step']} bytes")

    # A file with more ranks than samples, by both methods.
    file = folder / "set.libsvm"
    file.write_text("1 1:1 3:0.5 # first\r\n\n2 2:1\n1 1:0.5\n")
    for options in (["--batch", 1], ["--method", "scd", "--coordinates", 1, "--epochs", 9]):
        for row in rows_of("--data", file, *options, ranks=5).values():
            expect((row["samples"], row["features"], row["accuracy"]) == (3, 3, 1), f"a file of 3 samples: {row}")

    # Errors in the file and in the arguments.
    for text, says in {
        "1 1:1\n2 4:1\n": f"{file}:2:3: the index 4 is above the dimension 3",
        "1 1:1\n2 2:x\n": f"{file}:2:5: the value must be a finite number, not 'x'",
        "1 1:1\n2 1:1\n3 1:1\n": f"{file}:2:1: the label 2 is a third one; expected two labels",
        "1 1:1\n": f"{file} does not have samples of two labels",
        "": f"{file} does not have samples of two labels",
    }.items():
        file.write_text(text)
        run(*on_ranks(2), "--data", file, "--features", 3, status=2, says=says)
    for compress in (bz2.compress, gzip.compress, lzma.compress):
        file.write_bytes(compress(b"1 1:1\n2 2:1\n"))
        run(*on_ranks(2), "--data", file, status=2, says=f"{file} is compressed; unpack it first")
    file.write_text("1 1:1\n2 4294967296:1\n")
    run(program, "--data", file, status=2, says="the system mpi needs at most 2147483647 features, got 4294967296")
    little = f"ulimit -v 8000000 && {program} --data {file} --systems split_allgather"
    run("bash", "-c", little, status=2, says="too little memory for 4294967296 features")
    for arguments, says in {
        "--data /nonexistent": "/nonexistent cannot be read: No such file or directory",
        "--method gd": "--method",
        "--systems gtopk": "--method sgd has no system 'gtopk'; there are: mpi, sparcml, split_allgather, ",
        "--method scd --systems sparcml": "--method scd has no system 'sparcml'; there are: mpi, allgather",
        "--method scd --model svm": "--method scd needs --model logistic",
        "--scale 0": "--scale",
        "--scale nan": "--scale",
        "--rate 0": "--rate",
        "--batch 0": "--batch",
        "--data FILE --scale 0.1": "--scale excludes --data",
        "--features 3": "--features requires --data",
        "--seed -1": "--seed: Value -1",
        "--json /nonexistent/results.json": "/nonexistent/results.json cannot be written",
    }.items():
        run(program, *arguments.split(), status=2, says=says)
    run(program, "--scale", "1e-9", "--json", "/dev/full", status=1, says="/dev/full cannot be written")
    run(ROOT / "scripts/linear", "--mpi", "none", status=2, says="--mpi must be openmpi or mpich, not none")
    run(ROOT / "scripts/linear", "--ranks", 0, status=2, says="--ranks must be a positive number, not 0")
    run(ROOT / "scripts/linear", "--hosts", "0", status=2, says="hosts must be like 1,1,2, not '0'")

sys.exit(1 if failures else 0)
