#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the package spar for Python with gloo of torch.distributed and with spar in C++, as docs/results/python.md
shows. Writes the rows of each case to FILE, and keeps those of other cases. Run it with a Python that has torch and a
spar that is compiled for speed: pip install ., or PYTHONPATH=build/release/python.

bench/python.py FILE                 8 minutes on two cores that nothing else uses
bench/python.py FILE --only calls    a case: calls, mlp, image or embedding, each at most 3 minutes

calls      two ranks on one host, systems in turns: sparse tensors, rows, dense tensors, and 8 bytes
mlp, image, embedding    trainings by examples/python/train_torch.py on four emulated hosts with links of 1 Gbit/s

Exit status: that of the first program that fails, for example 77 if the machine does not permit namespaces.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools" / "results"))
sys.dont_write_bytecode = True

import records  # noqa: E402

ROUNDS = 9
CPP = "--transport ucx --ranks 2 --count 2 --density 1 --iterations 2000 --warmup 200 --systems rec_doubling"
TRAININGS = {
    "mlp": "--systems dense,fp16,powersgd,ok_topk,ok_topk+coded --batch 8 --steps 17",
    "image": "--systems dense,ok_topk --steps 2000 --seeds 3",
    "embedding": "--systems dense,ok_topk,two_shot --steps 107",
}


def run(*command, **variables):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | variables)
    if done.returncode:
        sys.exit(done.returncode)


def measure_calls(rounds, found):
    """Rows with the seconds of a call, of C++ and Python in turns."""
    rows = []
    for turn in range(rounds):
        run("scripts/perf", *CPP.split(), "--json", found)
        seconds = {("small numpy", "c++"): json.loads(found.read_text(encoding="utf-8"))[0]["seconds"]}
        run("scripts/ranks", "2", sys.executable, __file__, "--rank", found, GLOO_SOCKET_IFNAME="lo")
        for case, system, of in json.loads(found.read_text(encoding="utf-8")):
            seconds[case, system] = of
        rows += [{"case": case, "system": system, "round": turn, "seconds": of}
                 for (case, system), of in seconds.items()]
    return rows


def measure_in_rank(file):
    """One round of the calls, in one of two processes."""
    import torch
    import torch.distributed as dist

    import spar

    def seconds(comm, call, inputs):
        call(inputs[0])
        comm.barrier()
        begin = time.perf_counter()
        for values in inputs:
            call(values)
        return (time.perf_counter() - begin) / len(inputs)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with spar.Communicator.from_env() as comm:
        torch.manual_seed(comm.rank)
        indices = torch.randperm(1_000_000)[:10_000].sort().values
        ones = torch.ones(10_000)
        sparse = torch.sparse_coo_tensor(indices[None], ones, (1_000_000,), is_coalesced=True, check_invariants=False)
        rows = (200_000 * torch.rand(2048) ** 4).long().unique()  # such as of words, few of which are frequent
        table = torch.sparse_coo_tensor(rows[None], torch.ones(len(rows), 32), (200_000, 32), is_coalesced=True,
                                        check_invariants=False)
        dense, small = torch.zeros(1_000_000), torch.zeros(2)
        doubling = functools.partial(comm.allreduce, algorithm="rec_doubling")
        found = [
            ("small numpy", "spar", seconds(comm, doubling, [small.numpy()] * 20_000)),
            # gloo replaces a sparse tensor by the sum, so each call gets another one
            ("sparse", "spar", seconds(comm, comm.allreduce_sparse, [sparse] * 200)),
            ("sparse", "gloo", seconds(comm, dist.all_reduce, [sparse.clone() for _ in range(20)])),
            ("rows", "spar", seconds(comm, comm.allreduce_sparse, [table] * 50)),
            ("rows", "gloo", seconds(comm, dist.all_reduce, [table.clone() for _ in range(20)])),
            ("dense", "spar", seconds(comm, comm.allreduce, [dense] * 50)),
            ("dense", "gloo", seconds(comm, dist.all_reduce, [dense] * 50)),
            ("small", "spar", seconds(comm, doubling, [small] * 20_000)),
            ("small", "gloo", seconds(comm, dist.all_reduce, [small] * 1000)),
        ]
        if comm.rank == 0:
            pathlib.Path(file).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def measure_training(model, found):
    """Rows with the means of a step, one for each system."""
    command = ["scripts/hosts", "1,1,1,1", "1gbit", "scripts/ranks", "4", sys.executable,
               "examples/python/train_torch.py", "--model", model, *TRAININGS[model].split(), "--json", found]
    print("#", *command, flush=True)
    run(*command)
    of_run = json.loads(found.read_text(encoding="utf-8"))
    return [{"case": model, "steps": of_run["steps"], **row} for row in of_run["systems"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--only", choices=["calls", *TRAININGS])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of calls")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank:
        measure_in_rank(chosen.file)
        return
    rows = records.read(chosen.file, list)
    with tempfile.TemporaryDirectory() as folder:
        found = pathlib.Path(folder, "rows.json")
        for case in ["calls", *TRAININGS]:
            if chosen.only not in (None, case):
                continue
            new = measure_training(case, found) if case in TRAININGS else measure_calls(chosen.rounds, found)
            cases = {row["case"] for row in new}
            rows = [row for row in rows if row["case"] not in cases] + new
            rows.sort(key=lambda row: [*TRAININGS].index(row["case"]) if row["case"] in TRAININGS else -1)
            records.write(chosen.file, json.dumps(rows, indent=0))


if __name__ == "__main__":
    main()
