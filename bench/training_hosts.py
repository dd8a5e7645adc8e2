#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains over emulated hosts with slow links, as FlexReduce's figure 4 (f) and section V of Zhou et al. do, measures
FlexReduce's sizes (figures 4 (d) and (e)) and trees of three levels, and writes all results to FILE, which
docs/results/flexreduce.md and docs/results/preload.md show.

bench/training_hosts.py FILE [--short] [PART ...]

FILE keeps the parts that do not run. --short trains on a tenth of the images, once. Parts, with the minutes that they
take on two cores that nothing else uses, estimated:

  images      epochs of examples/images with five schedules, and with computation of 100 ms a step; 4 minutes
  preloaded   epochs of examples/plain_mpi, below which the preloaded library runs these schedules; 3 minutes
  codecs      epochs of examples/plain_mpi with codecs; 5 minutes
  sizes       allreduces of 1 to 128 MiB; 6 minutes
  levels      simulated trees of three levels: the same results in every run; 1 minute

Exit status: that of the first program that fails, 77 if the machine does not permit namespaces; 2 for a wrong option.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools" / "results"))
sys.dont_write_bytecode = True

import records  # noqa: E402

UNEVEN = ["2,3", "3,3,4"]
PLANS = "ring,hierarchical,blueconnect,flexreduce"
SLOW = "--link 100mbit --mpi openmpi"
CODECS = "own,ring,ring+zfp:16,ring+zfp:10,ring+zfp:8,rec_doubling+zfp:8,two_shot+zfp:8,ring+qsgd:8,two_shot+qsgd:8"
KEYS = """system ranks n steps step_seconds computing_seconds communicating_seconds history report times seconds
root_link_bytes model_seconds calls_mean calls_max""".split()  # of the rows that are kept

GBIT, MEMORY = 1.25e8, 1e10  # bytes per second
RACKS = [[3], [4, 4], [2, 4, 3]]  # ranks on the hosts of each rack
TREES = {  # name: bytes per second of the links from the root down, and the numbers of ranks
    **{f"racks, {rate:g} Gbit/s": ([rate * GBIT, 10 * GBIT, MEMORY], RACKS) for rate in (10, 5, 2.5, 1)},
    "equal racks, 2.5 Gbit/s": ([2.5 * GBIT, 10 * GBIT, MEMORY], [[4, 4], [4, 4]]),
    "sockets, 1 Gbit/s": ([GBIT, MEMORY, 2 * MEMORY], [[2, 3], [4, 4]]),
}


def tree_of(bandwidths, counts, first=0):
    """The tree of a topology file with these numbers of ranks below the lowest branches, and its number of ranks."""
    head = {"bandwidth": bandwidths[0], "latency": 2e-5 if bandwidths[0] < MEMORY else 1e-6, "children": []}
    if isinstance(counts, int):
        head["children"] = [{"rank": first + r} for r in range(counts)]
        return head, counts
    ranks = 0
    for below in counts:
        child, more = tree_of(bandwidths[1:], below, first + ranks)
        head["children"].append(child)
        ranks += more
    return head, ranks


class runs:
    """Runs commands of the tree, and collects their rows."""

    def __init__(self, short, folder):
        self.short, self.folder, self.rows = short, folder, []

    def add(self, command, **said):
        """Adds the rows of a command that writes JSON, each with what is `said` of the run."""
        words, found = shlex.split(command), self.folder / "rows.json"
        print(f"== {command}", flush=True)
        # The preloaded library leaves exact sums as short as the gradient to the MPI library by default.
        environment = os.environ | {"SPAR_MIN_BYTES": "65536"}
        status = subprocess.run([ROOT / words[0], *words[1:], "--json", found], cwd=ROOT, env=environment).returncode
        if status != 0:
            sys.exit(status)
        for row in json.loads(found.read_text(encoding="utf-8")):
            self.rows.append(said | {key: row[key] for key in KEYS if row.get(key) is not None})

    def images(self, full):
        return full // 10 if self.short else full

    def repeats(self):
        return range(1 if self.short else 3)


def images(m):
    how = f"scripts/train_images {SLOW} --epochs 1 --limit {m.images(6400)} --hosts"
    for repeat in m.repeats():
        for hosts in UNEVEN:
            m.add(f"{how} {hosts} --systems {PLANS},mpi", hosts=hosts, repeat=repeat, step=0)
            m.add(f"{how} {hosts} --systems ring,blueconnect,flexreduce --step 100ms", hosts=hosts, repeat=repeat,
                  step=0.1)


def preloaded(m):
    for repeat in m.repeats():
        for hosts in UNEVEN:
            m.add(f"scripts/train_preloaded --hosts {hosts} {SLOW} --settings own,{PLANS} --epochs 1 --images "
                  f"{m.images(6400)} --test-images 1000", hosts=hosts, repeat=repeat)


def codecs(m):
    for link, epochs in (("100mbit", 2), ("1gbit", 4)):
        m.add(f"scripts/train_preloaded --hosts 1,1,1,1 --link {link} --mpi openmpi --settings {CODECS} --epochs "
              f"{epochs} --images {m.images(20000)}", link=link)


def sizes(m):
    for hosts in ("2,3", "3,3,4", "4,4,4"):
        for count in ("256K", "1M") if m.short else ("256K", "1M", "4M", "16M", "32M"):
            m.add(f"scripts/netperf --hosts {hosts} --link 1gbit --mpi openmpi --density 1 --count {count} "
                  f"--iterations 3 --warmup 1 --systems {PLANS},mpi", hosts=hosts)


def levels(m):
    for name, (bandwidths, counts) in TREES.items():
        tree, ranks = tree_of(bandwidths, counts)
        path = m.folder / "tree.json"
        path.write_text(json.dumps(tree), encoding="utf-8")
        m.add(f"scripts/perf --transport sim --ranks {ranks} --topology {path} --density 1 --count "
              f"{'64K' if m.short else '4M'} --iterations 1 --warmup 0 --systems {PLANS},tree_dense", tree=name)


PARTS = {part.__name__: part for part in (images, preloaded, codecs, sizes, levels)}


def main():
    parser = records.parser(__doc__)
    parser.add_argument("parts", metavar="PART", nargs="*", help=", ".join(PARTS))
    chosen = parser.parse_intermixed_args()
    if unknown := [part for part in chosen.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    results = records.read(chosen.file, dict)
    for part in chosen.parts or PARTS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            m = runs(chosen.short, pathlib.Path(folder))
            PARTS[part](m)
        results[part] = {"short": chosen.short, "seconds": round(time.monotonic() - started), "rows": m.rows}
        print(f"{part}: {results[part]['seconds']} s", flush=True)
        records.write(chosen.file, json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
