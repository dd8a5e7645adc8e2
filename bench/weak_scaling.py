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
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools" / "results"))
sys.dont_write_bytecode = True

import records  # noqa: E402

NETWORKS = ["aries", "1gbit"]
MI = 2**20
GATHERING = "topka,gaussiank"  # their memory and time grow with the square of the ranks
OTHERS = "dense,topkdsa,gtopk,ok_topk"
# Numbers of values, ranks and calls. On 256 ranks, GATHERING would take more than 12 GB of memory.
RUNS = [(MI, 16, 16, f"{OTHERS},{GATHERING}"), (MI, 32, 16, f"{OTHERS},{GATHERING}"),
        (MI, 64, 8, f"{OTHERS},{GATHERING}"), (MI, 128, 4, OTHERS), (MI, 128, 2, GATHERING), (MI, 256, 4, OTHERS)]
TERMS = ["alpha", "beta", "gamma"]  # of the network, each of which is once taken out on 64 ranks
# With 16 Mi values, the systems of 32 ranks would together take more than 12 GB.
LARGE = ["dense", "topkdsa", "gtopk", "ok_topk"]
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


def allreduces(network, n, ranks, calls, systems, without=None):
    with tempfile.TemporaryDirectory() as folder:
        path, costs = pathlib.Path(folder) / "rows.json", pathlib.Path(folder) / "network"
        text = (ROOT / "bench" / "results" / f"network_{network}").read_text()
        costs.write_text(re.sub(rf"^({without}\w*) .*", r"\1 1e-15", text, flags=re.M) if without else text)
        print(output_of("scripts/perf", "--transport", "sim", "--network", costs,
                        "--pattern", "drift", "--density", 0.01, "--warmup", 0, "--iterations", calls, "--ranks", ranks,
                        "--count", n, "--systems", systems, "--json", path))
        name = f"{network} without {without}" if without else network
        return [{"network": name, **{key: r[key] for key in KEYS}} for r in json.loads(path.read_text())]


def overlapped(network, n, ranks, computation):
    program = output_of("scripts/program", "dense_overlap", "none").strip()
    said = output_of(program, f"bench/results/network_{network}", ranks, n, BUCKETS, computation)
    return {"network": network, **json.loads(said)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", type=pathlib.Path)
    path = parser.parse_args().file
    rows = records.read(path, list)

    def find(system, network, n, ranks):
        wanted = {"system": system, "network": network, "n": n, "ranks": ranks}
        return next((r for r in rows if wanted.items() <= r.items()), None)

    def keep(found):
        rows.extend(found)
        records.write(path, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]")

    try:
        for n, ranks, calls, systems in RUNS:
            for network in NETWORKS:
                if not find(systems.split(",")[0], network, n, ranks):
                    keep(allreduces(network, n, ranks, calls, systems))
        for n, ranks in dict.fromkeys((n, ranks) for n, ranks, *_ in RUNS):
            for network in NETWORKS:
                if not find("dense_overlap", network, n, ranks):
                    computation = COMPUTATION * find("dense", network, n, 32)["times"][0]
                    keep([overlapped(network, n, ranks, computation)])
        for network in NETWORKS:
            for term in TERMS:
                if not find("dense", f"{network} without {term}", MI, 64):
                    keep(allreduces(network, MI, 64, 3, OTHERS, without=term))
        for network in NETWORKS:
            for system in LARGE:
                if not find(system, network, 16 * MI, 32):
                    keep(allreduces(network, 16 * MI, 32, 2, system))
    except failed as error:
        return error.args[0]
    return 0


if __name__ == "__main__":
    sys.exit(main())
