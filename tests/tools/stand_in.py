#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stands in for the programs that experiments measure, under their names. Appends the command to the file that
SPAR_TEST_LOG names, and writes rows as these programs do, whose times follow from the name of the system. Fails with
exit status STATUS if SPAR_TEST_FAIL is STATUS:WORD and WORD is a word of the command."""

import json
import os
import pathlib
import sys

SECONDS = {"mpi": 8, "own": 8, "dense": 8, "everyone": 8, "ring": 4, "blueconnect": 4, "flexreduce": 3, "ok_topk": 1}
MI = 2**20

name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
options = {word[2:]: value for word, value in zip(words, words[1:]) if word.startswith("--")}
texts = {key: pathlib.Path(options[key]).read_text() for key in ("network", "topology") if key in options}
with open(os.environ["SPAR_TEST_LOG"], "a") as log:
    log.write(json.dumps({"words": [name, *words], "environment": dict(os.environ), **texts}) + "\n")
status, _, word = os.environ.get("SPAR_TEST_FAIL", "0:").partition(":")
if word in words:
    sys.exit(int(status))
if name in ("hosts", "mpirun"):
    os.execvp(words[2], words[2:])

hosts = options.get("hosts")
ranks = sum(map(int, hosts.split(","))) if hosts else int(options.get("simulate") or options.get("ranks", 4))
epochs = int(options.get("epochs", 1))


def size_of(text):
    return int(text.rstrip("KM")) * {"K": 2**10, "M": MI}.get(text[-1], 1)


def call(system, seconds):
    """A row of spar_perf: an MiB takes as many milliseconds as SECONDS says, times the ranks of a simulated network."""
    n = size_of(options["count"])
    seconds *= ranks if "network" in options else 1
    times = [1e-3 * seconds * 4 * n / MI] * int(options["iterations"])
    return {"n": n, "times": times, "seconds": times[0], "root_link_bytes": 4 * n, "model_seconds": times[0] / 2,
            "calls_mean": 1.25, "calls_max": 2, "nnz_in": n // 100, "nnz_out_mean": n / 100, "words_sent": 4,
            "words_sent_mean": 4 * seconds, "messages": 2, "iterations": len(times), "epsilon": 0.1, "tau": 64,
            "tau_prime": 32, "alpha": 1.5e-6, "beta": 1e-9, "gamma_sparse": 3e-9, "gamma_dense": 1e-9}


def training(system, seconds):
    """A training that is right for 90 % of the images after all epochs, and for a part of them in proportion."""
    seeds, tests = int(options.get("seeds", 1)), int(options.get("tests", 1))
    history = [{"epoch": i / tests, "seconds": seconds * i, "accuracy": 0.9 * i / (epochs * tests), "xi_max": 2,
                "xi_mean": 1, "accuracy_by_seed": [0.9 * i / (epochs * tests)] * seeds,
                "seconds_by_seed": [seconds * i] * seeds} for i in range(1, epochs * tests + 1)]
    return {"seeds": seeds, "steps": 10, "step_seconds": seconds, "computing_seconds": 1, "selecting_seconds": 1,
            "communicating_seconds": seconds - 1, "accuracy_mean": 0.9, "accuracy_min": 0.9, "accuracy_max": 0.9,
            "history": history, "report": None}


def classifier(system, seconds):
    """A linear classifier, whose losses differ from those with MPI in the second batch."""
    scd = options.get("method") == "scd"
    losses = {} if scd else {"batch_losses": [0.5, 0.25 if system == "mpi" else 0.251]}
    history = [{"communicating_seconds": seconds, "seconds": seconds + 1, "loss": 0.5, "accuracy": 0.5}] * epochs
    return losses | {"set": options["set"], "model": options.get("model", "logistic"), "steps": 4, "loss": 0.5,
                     "bytes_per_step": 1000 * seconds, "epoch_seconds": seconds + 1, "computing_seconds": 1,
                     "waiting_seconds": 1, "communicating_seconds": seconds, "accuracy": 0.5, "history": history}


def eager(participation, seconds):
    milliseconds = 1e-3 * float(options.get("delay", "0ms").removesuffix("ms"))
    return {"participation": participation, "imbalance": options.get("imbalance", "none"), "delay": milliseconds,
            "tau": int(options.get("tau", 64)), "average": int(options.get("average", 0)), "stale_max": 3,
            "steps_per_second": 1 / seconds, "frames_min": 1, "frames_max": 3, "frames_mean": 2,
            "frames_deviation": 1, **training(participation, seconds), "seeds": int(options.get("seeds", 1))}


if name == "setup":
    pass
elif name == "program":
    library = {"none": "", "any": "_openmpi"}.get(words[1], "_" + words[1])
    print(pathlib.Path(sys.argv[0]).with_name(words[0] + library))
elif name.startswith("plain_mpi_"):
    pathlib.Path(options["json"]).write_text(json.dumps(training("own", 8)))
elif name == "ranks" and "rank" in options:  # bench/python.py
    sizes = {"sparse": 1e-4, "rows": 1e-4, "dense": 1e-3, "small": 1e-6}
    found = [(case, system, seconds * size) for case, size in sizes.items()
             for system, seconds in (("spar", 1), ("gloo", 4))]
    pathlib.Path(options["rank"]).write_text(json.dumps([("small numpy", "spar", 4e-6), *found]))
elif name == "ranks":  # examples/python/train_torch.py
    of = {system: SECONDS.get(system, 2) for system in options["systems"].split(",")}
    found = [{"system": system, "seconds": seconds / 8, "communication": seconds / 16, "bytes": 1e6 * seconds,
              "accuracies": [0.9] * int(options.get("seeds", 1))} for system, seconds in of.items()]
    pathlib.Path(options["json"]).write_text(json.dumps({"steps": 9, "systems": found}))
elif name == "dense_overlap":
    _, ranks, n, buckets, computation = words
    print(json.dumps({"system": name, "ranks": int(ranks), "n": int(n), "buckets": int(buckets),
                      "computation": float(computation), "seconds": 9 * float(computation)}))
else:
    row = {"linear": classifier, "perf": call, "netperf": call, "sequences": eager, "hyperplane": eager}.get(
        name, training)
    systems = next((options[key] for key in ("systems", "settings", "participation") if key in options),
                   "mpi,allgather").split(",")
    rows = [{"system": system, "ranks": ranks, "unused": 1, **row(system, SECONDS.get(system, 2))}
            for system in systems]
    pathlib.Path(options.get("json", os.devnull)).write_text(json.dumps(rows))
