#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares spar over UCX with spar over both MPI libraries, and with their MPI_Allreduce, as docs/results/speed.md
shows. Writes the seconds of each case, transport and round to FILE. The transports take turns in each round, because
machines change their speed.

bench/transports.py FILE            17 minutes on two cores that nothing else uses
bench/transports.py FILE --short    one round: 1 minute

Exit status: that of the first program that fails, for example 77 if the machine does not permit namespaces.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools" / "results"))
sys.dont_write_bytecode = True

import records  # noqa: E402

TRANSPORTS = {"ucx": ["--transport", "ucx"], "openmpi": ["--mpi", "openmpi"], "mpich": ["--mpi", "mpich"]}
# Case, rounds, script and its options, system.
CASES = [
    ("small", 40, "perf", "--ranks 2 --count 2 --density 1 --iterations 2000 --warmup 200", "rec_doubling"),
    ("sparse", 40, "perf", "--ranks 2 --count 1000000 --density 0.01 --iterations 60", "rec_doubling"),
    ("long", 9, "perf", "--ranks 2 --count 16M --density 1 --iterations 5 --warmup 2", "ring"),
    ("hosts", 9, "netperf", "--hosts 1,1,1,1 --count 1M --density 1 --iterations 5 --warmup 1", "ring"),
]


def main():
    chosen = records.parser(__doc__).parse_args()
    records.read(chosen.file, list)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        found = pathlib.Path(folder, "rows.json")
        for case, rounds, script, options, system in CASES:
            for turn in range(1 if chosen.short else rounds):
                for transport, choice in TRANSPORTS.items():
                    systems = system if transport == "ucx" else f"{system},mpi"
                    command = [f"scripts/{script}", *choice, *options.split(), "--systems", systems, "--json", found]
                    if turn == 0:
                        print("#", *command, flush=True)
                    status = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode
                    if status != 0:
                        return status
                    rows += [{"case": case, "round": turn, "transport": transport, "system": row["system"],
                              "seconds": row["seconds"]} for row in json.loads(found.read_text(encoding="utf-8"))]
            records.write(chosen.file, json.dumps(rows, indent=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
