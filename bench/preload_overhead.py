#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures MPI_Allreduce with and without libspar_mpi.so in turn: median and range of the ratios of the times.

bench/preload_overhead.py [--mpi openmpi|mpich] [--ranks N | --hosts RANKS,... --link RATE] [--pairs N]
                          [--min-bytes N] [--count N[K|M] ...]

Runs on ranks of this machine, or over emulated hosts (scripts/hosts).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="openmpi")
parser.add_argument("--ranks", default="2")
parser.add_argument("--hosts")
parser.add_argument("--link", default="1gbit")
parser.add_argument("--pairs", type=int, default=9)
parser.add_argument("--min-bytes", help="value of SPAR_MIN_BYTES; default: the library's thresholds")
parser.add_argument("--count", nargs="+", default=["4", "256", "4K", "64K", "1M", "8M", "16M"], help="in floats")
given = parser.parse_args()
network, where, most = [], "", 20_000_000  # most values in all calls of a run together
if given.hosts:
    given.ranks = str(sum(map(int, given.hosts.split(","))))
    network, where = [ROOT / "scripts/hosts", given.hosts, given.link], f", hosts {given.hosts}, {given.link}"
    most = 1_000_000
    os.environ["SPAR_YIELD"] = "always"  # ranks and the kernel's network code share the cores


def progress(text):
    print(text, file=sys.stderr, flush=True)


def built(name):
    progress(f"building {name}, which takes some minutes the first time")
    command = [ROOT / "scripts/program", name, given.mpi]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def seconds(count, *launcher):
    with tempfile.TemporaryDirectory() as folder:
        found = pathlib.Path(folder, "found.json")
        values = int(count.replace("K", "000").replace("M", "000000"))
        options = ["--count", count, "--iterations", str(max(10, min(20000, most // values)))]
        command = [*network, ROOT / "scripts/mpirun", given.mpi, given.ranks, *launcher, program, "--systems", "mpi",
                   "--density", "1", "--json", found, *options]
        subprocess.run(command, check=True, capture_output=True)
        return json.loads(found.read_text())[0]["seconds"]


program, library = built("spar_perf"), built("spar_preload")
# scripts/mpirun would search for this library above the program that it starts, which is a shell here.
yielding = pathlib.Path(library).parents[1] / "libspar_yield.so"
if yielding.exists():
    os.environ["SPAR_YIELD_LIBRARY"] = str(yielding)
# libspar_mpi.so must come before the library that scripts/mpirun itself preloads.
shell = f'LD_PRELOAD="{library}${{LD_PRELOAD:+:$LD_PRELOAD}}" exec "$@"'
below = ["env", *([f"SPAR_MIN_BYTES={given.min_bytes}"] if given.min_bytes else []), "sh", "-c", shell, "sh"]
print(f"# {given.mpi}, {given.ranks} ranks{where}, {given.pairs} pairs: "
      "with / without, median (range); seconds without", flush=True)
for count in given.count:
    pairs = []
    for pair in range(1, given.pairs + 1):
        progress(f"{count} floats: pair {pair} of {given.pairs}")
        pairs.append((seconds(count), seconds(count, *below)))
    ratios = [taken / own for own, taken in pairs]
    ratio, alone = statistics.median(ratios), statistics.median(own for own, _ in pairs)
    print(f"{count:>6} {ratio:6.2f} ({min(ratios):.2f} .. {max(ratios):.2f}) {alone:10.3g}", flush=True)
