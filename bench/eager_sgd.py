#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains by eager-SGD with late ranks, as docs/results/late_ranks.md shows, and writes the results of all runs to FILE.

bench/eager_sgd.py FILE                        simulated ranks: the same results in every run; 3 minutes of one core
bench/eager_sgd.py FILE --mpi openmpi|mpich    ranks that sleep: 14 minutes on two cores that nothing else uses

Exit status: that of the first program that fails.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools" / "results"))
sys.dont_write_bytecode = True

import records  # noqa: E402


# Batches of different lengths make the ranks late.
LENGTHS = "--epochs 12 --seeds 3 --participation "
EVERY = "everyone,solo,majority,quorum:4"
# Equal lengths: 512 steps of 840 ms, or of 399 ms in a cloud, of 128 sequences, on any number of ranks.
EQUAL = "--participation everyone,solo,majority --epochs 16 --spread 0 --median 100"
LATE = EQUAL + " --imbalance random:{} --delay {}"
CLOUD = EQUAL + " --imbalance cloud --delay 55ms"
SIMULATED = [
    "sequences --simulate 8 " + LENGTHS + EVERY,
    "sequences --simulate 8 --average 1 " + LENGTHS + EVERY,
    "sequences --simulate 8 --tau 4 " + LENGTHS + "solo",
    "sequences --simulate 64 --batch 2 --frame 4.2ms " + LATE.format(4, "300ms"),
    "sequences --simulate 64 --batch 2 --frame 4.2ms " + LATE.format(4, "460ms"),
    "sequences --simulate 8 --batch 16 --frame 525us " + LATE.format(2, "300ms"),
    "sequences --simulate 4 --batch 32 --frame 262.5us " + LATE.format(1, "300ms"),
    "sequences --simulate 64 --batch 2 --frame 1.995ms " + CLOUD,
]
PARTICIPATIONS = "--participation everyone,solo,majority"
OVER_MPI = [
    "sequences --ranks 8 " + PARTICIPATIONS,
    "sequences --ranks 8 --average 1 " + PARTICIPATIONS,
    "sequences --ranks 4 " + PARTICIPATIONS,
    *(f"hyperplane --ranks 8 --delay {delay} {PARTICIPATIONS}" for delay in ("20ms", "30ms", "40ms")),
    "hyperplane --ranks 8 --imbalance random:2 --delay 20ms " + PARTICIPATIONS,
    "hyperplane --ranks 4 --imbalance random:1 --delay 20ms " + PARTICIPATIONS,
    "hyperplane --ranks 8 --imbalance cloud --delay 4.4ms " + PARTICIPATIONS,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--mpi", choices=["openmpi", "mpich"])
    args = parser.parse_args()
    records.read(args.file, list)
    all_rows = []
    with tempfile.TemporaryDirectory() as directory:
        found = pathlib.Path(directory) / "rows.json"
        for run in OVER_MPI if args.mpi else SIMULATED:
            name, *options = run.split()
            print(f"== scripts/{run}", flush=True)
            mpi = ["--mpi", args.mpi] if args.mpi else []
            status = subprocess.run([ROOT / "scripts" / name, *mpi, *options, "--json", found]).returncode
            if status != 0:
                return status
            all_rows += [{"program": name, **row} for row in json.loads(found.read_text())]
    records.write(args.file, json.dumps(all_rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
