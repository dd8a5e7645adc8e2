#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulates the allreduce of a training step on 16 to 256 ranks (Ok-Topk, section 5.4), for docs/results/ok_topk.md.

bench/weak_scaling.py FILE

Writes the rows of all runs to FILE after each run, and leaves out runs whose rows FILE has. Exit status: that of the
first program that fails.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NETWORKS = ["aries", "1gbit"]
SYSTEMS = "dense,topka,topkdsa,gtopk,gaussiank,ok_topk"
MI = 2**20
# Number of values, then of calls by ranks: fewer where a call takes longer to simulate.
CALLS = {MI: {16: 16, 32: 16, 64: 8, 128: 8, 256: 4}, 16 * MI: {16: 4, 32: 4}}
KEYS = ["system", "ranks", "n", "nnz_in", "nnz_out_mean", "words_sent", "words_sent_mean", "messages", "iterations",
        "epsilon", "tau", "tau_prime", "alpha", "beta", "gamma_sparse", "gamma_dense", "times"]
# A bucket of the overlapped dense allreduce has n / BUCKETS values. The computation of a step takes COMPUTATION times
# as long as the dense allreduce on 32 ranks.
BUCKETS = 16
COMPUTATION = 0.31


class failed(Exception):
    pass


def output_of(*command):
    words = [str(word) for word in command]
    print("==", *words, flush=True)
    ended = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if ended.returncode != 0:
        raise failed(ended.returncode)
    return ended.stdout


def allreduces(network, n, ranks, calls):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        print(output_of("scripts/perf", "--transport", "sim", "--network", f"bench/results/network_{network}",
                        "--pattern", "drift", "--density", 0.01, "--warmup", 0, "--iterations", calls, "--ranks", ranks,
                        "--count", n, "--systems", SYSTEMS, "--json", path))
        return [{"network": network, **{key: r[key] for key in KEYS}} for r in json.loads(path.read_text())]


def overlapped(network, n, ranks, computation):
    program = output_of("scripts/program", "dense_overlap", "none").strip()
    said = output_of(program, f"bench/results/network_{network}", ranks, n, BUCKETS, computation)
    return {"network": network, **json.loads(said)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", type=pathlib.Path)
    path = parser.parse_args().file
    rows = json.loads(path.read_text()) if path.exists() else []

    def find(system, network, n, ranks):
        wanted = {"system": system, "network": network, "n": n, "ranks": ranks}
        return next((r for r in rows if wanted.items() <= r.items()), None)

    def keep(found):
        rows.extend(found)
        path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")

    try:
        for n, calls in CALLS.items():
            for ranks in calls:
                for network in NETWORKS:
                    if not find("dense", network, n, ranks):
                        keep(allreduces(network, n, ranks, calls[ranks]))
            for network in NETWORKS:
                computation = COMPUTATION * find("dense", network, n, 32)["times"][0]
                for ranks in calls:
                    if not find("dense_overlap", network, n, ranks):
                        keep([overlapped(network, n, ranks, computation)])
    except failed as error:
        return error.args[0]
    return 0


if __name__ == "__main__":
    sys.exit(main())
