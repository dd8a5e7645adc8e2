#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the classifier of images over emulated hosts with each system of Ok-Topk's evaluation, as
docs/results/ok_topk.md shows, and writes the rows of scripts/train_images to FILE, with the rate of the links.

bench/time_to_accuracy.py FILE            40 minutes on two cores that nothing else uses
bench/time_to_accuracy.py FILE --short    one epoch of fewer images, once: 2 minutes

Exit status: that of the first training that fails, for example 77 if the machine does not permit namespaces.
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

DENSE = "dense,dense+overlap"
SPARSE = "topka,topka+overlap,topkdsa,gtopk,gaussiank,ok_topk,ok_topk+overlap"
# Dense sums at 100 Mbit/s take half of the time with one seed. What they learn does not depend on the network.
RUNS = [(hosts, link, systems, 1 if (link, systems) == ("100mbit", DENSE) else 3)
        for hosts in (4, 8) for link in ("1gbit", "100mbit") for systems in (SPARSE, DENSE)]


def main():
    chosen = records.parser(__doc__).parse_args()
    records.read(chosen.file, list)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        found = pathlib.Path(folder, "rows.json")
        for hosts, link, systems, seeds in RUNS:
            sizes = ["--epochs", "1", "--limit", "8000"] if chosen.short else ["--epochs", "4", "--seeds", str(seeds)]
            command = ["scripts/train_images", "--mpi", "openmpi", "--hosts", ",".join(hosts * "1"), "--link", link,
                       "--systems", systems, "--tests", "4", *sizes, "--json", found]
            print("#", *command, flush=True)
            status = subprocess.run(command, cwd=ROOT).returncode
            if status != 0:
                return status
            rows += [{"link": link, **row} for row in json.loads(found.read_text(encoding="utf-8"))]
            records.write(chosen.file, json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
