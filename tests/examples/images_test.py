#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains on few images through the command line: exit status, table, the keys and figures of the JSON, the plot.

images_test.py openmpi|mpich PROGRAM
"""

import gzip
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

from running import ROOT, expect, failures, flavour, on_ranks, program, run

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
KEYS = """system density ranks parameters epochs seeds steps accuracy_mean accuracy_min accuracy_max bytes_per_step
words_per_step step_seconds steps_per_second fresh_mean stale_max xi_max selected_max selected_mean selected_deviation
summed_max summed_mean summed_deviation ranks_agree computing_seconds selecting_seconds communicating_seconds hidden
hidden_ideal history""".split()
PARAMETERS = (784 + 1) * 256 + (256 + 1) * 128 + (128 + 1) * 10


def train(path, *arguments, command):
    path.unlink(missing_ok=True)
    run(*command, "--json", path, *arguments)
    return {row["system"]: row for row in json.loads(path.read_text())} if path.exists() else {}


def idx(*dimensions, value=0):
    head = struct.pack(f">HBB{len(dimensions)}I", 0, 8, len(dimensions), *dimensions)
    return gzip.compress(head + bytes([value]) * math.prod(dimensions))


if not DATA.exists():
    print("skipped: no Fashion-MNIST (Debian package dataset-fashion-mnist)")
    sys.exit(77)

with tempfile.TemporaryDirectory() as directory:
    directory = pathlib.Path(directory)
    results, plot, bad = directory / "results.json", directory / "plot.svg", directory / "bad"

    # Every system, through the script.
    few = "--limit 1000 --epochs 2 --batch 16".split()
    every = ["dense", "mpi", "topka", "gaussiank", "sparcml_q4", "topkdsa", "gtopk", "ok_topk", "ok_topk+coded"]
    every += ["ok_topk+coded:bf16", "ok_topk+pruned", "ok_topk@0.02", "ok_topk+coded:bf16@0.02", "bucket_q4"]
    every += ["ring+zfp:8", "rec_doubling+qsgd:8", "two_shot+mx:e2m1", "two_shot+bound:1e-2", "ring+bound:1e-2"]
    every += ["ring", "two_shot", "hierarchical", "blueconnect", "flexreduce"]
    every += ["dense+overlap", "topka+overlap", "ok_topk+overlap", "ok_topk+overlap@0.02"]
    few += ["--part", "30000"]
    script = [ROOT / "scripts/train_images", "--mpi", flavour]
    found = train(results, *few, "--systems", ",".join(every), "--seeds", "2", command=script)
    expect(list(found) == every, f"the systems are {list(found)}")
    for name, row in found.items():
        expect(set(KEYS) == set(row), f"{name} has the keys {sorted(row)}")
        expect(row["ranks_agree"] is True, f"{name}: the ranks' weights differ")
        expect(row["steps"] == 2 * (1000 // (4 * 16)), f"{name} makes {row['steps']} steps")
        expect(row["parameters"] == PARAMETERS, f"{name} has {row['parameters']} parameters")
        learnt = [row[f"accuracy_{which}"] for which in ("min", "mean", "max")]
        expect(0.5 < learnt[0] <= learnt[2] < 0.9, f"{name} learns {learnt}")
        expect(abs(learnt[1] - (learnt[0] + learnt[2]) / 2) < 1e-9, f"the mean of two seeds of {name}: {learnt}")
        expect([h["epoch"] for h in row["history"]] == [1, 2], f"{name} has the history {row['history']}")
        expect(row["history"][1]["accuracy"] == row["accuracy_mean"], f"{name} ends elsewhere than its history")
        expect(abs(row["history"][1]["bytes"] - row["steps"] * row["bytes_per_step"]) < 1, f"{name}: other bytes")
        expect(row["step_seconds"] > 0, f"{name} takes no time")
        expect(row["fresh_mean"] == 4 and row["stale_max"] == 0, f"{name} goes on without late ranks")
        k = int(row["density"] * PARAMETERS)
        overlaps = name.endswith(("+overlap", "+overlap@0.02"))
        if overlaps and row["density"] < 1:
            k += 10  # at most so many parts, each of which selects a whole number of entries
        most = 1.1 * k if "ok_topk" in name else PARAMETERS if name == "gaussiank" else k
        expect(k / 3 < row["selected_max"] <= most, f"{name} selects {row['selected_max']}, not {k}")
        if "ok_topk" in name:
            off = row["selected_deviation"], row["summed_deviation"]
            expect(max(off) <= 0.1, f"{name} misses k by {off} on average")
        expect(row["computing_seconds"] > 0 and row["communicating_seconds"] > 0, f"{name}: no seconds of a phase")
        expect(row["hidden"] <= 1.01 and 0 <= row["hidden_ideal"] <= 1, f"{name} hides {row['hidden']}")
        expect((row["hidden_ideal"] > 0) == overlaps, f"{name} could hide {row['hidden_ideal']}")
        expect((row["xi_max"] == 0) == (k == PARAMETERS) and row["xi_max"] < 20, f"{name} has xi {row['xi_max']}")
        expect(max(h["xi_max"] for h in row["history"]) == row["xi_max"], f"{name}: {row['history']}")
        expect(all(0 <= h["xi_mean"] <= h["xi_max"] for h in row["history"]), f"{name}: {row['history']}")
    k, sent = int(0.01 * PARAMETERS), {name: row["bytes_per_step"] for name, row in found.items()}
    expect(sent["mpi"] == 4 * 2 * PARAMETERS * 3 / 4, f"MPI sends {sent['mpi']} bytes a step")
    expect(sent["mpi"] < sent["dense"] < 1.01 * sent["mpi"], f"dense sends {sent['dense']} bytes a step")
    expect(8 * 3 * k < sent["topka"] < 1.01 * 8 * 3 * k, f"topka sends {sent['topka']} bytes a step")
    for name in ("ring", "two_shot", "hierarchical", "blueconnect", "flexreduce"):  # on one host, plans are the ring
        expect(sent["mpi"] < sent[name] < 1.01 * sent["mpi"], f"{name} sends {sent[name]} bytes a step")
    for name, bits in {"ring+zfp:8": 8, "two_shot+mx:e2m1": 4.25}.items():
        share = sent[name] / sent["dense"]
        expect(bits / 32 < share < 1.02 * bits / 32, f"{name} sends {share} of the bytes of dense")
    expect(sent["two_shot+bound:1e-2"] < sent["dense"] / 4, f"bound sends {sent['two_shot+bound:1e-2']} bytes a step")
    learnt = [found[f"{by}+bound:1e-2"]["history"][1]["accuracy"] for by in ("ring", "two_shot")]
    expect(learnt[0] == learnt[1], f"by two schedules, bound learns {learnt}")
    entries = 3 / 4 * (k + found["topkdsa"]["summed_mean"])  # to the owners of the parts, and the sums of a part to all
    expect(abs(sent["topkdsa"] / (8 * entries) - 1) < 0.02, f"topkdsa sends {sent['topkdsa']} bytes a step")
    words = found["topka"]["words_per_step"]  # with the size of each stream
    expect(words == 2 * 3 * (k + 1), f"topka sends {words} words a step")
    expect(8 * 1.5 * k < sent["gtopk"] < 1.01 * 8 * 1.5 * k, f"gtopk sends {sent['gtopk']} bytes a step")
    expect(sent["ok_topk"] < 1.1 * 8 * 6 / 2 * k, f"ok_topk sends {sent['ok_topk']} bytes a step")
    for density in ("", "@0.02"):
        share = sent["ok_topk+coded:bf16" + density] / sent["ok_topk" + density]
        expect(0.2 < share < 1 / 3, f"a step of ok_topk+coded:bf16{density} sends {share} of the bytes of ok_topk")
    for exact in ("ok_topk+coded", "ok_topk+pruned"):
        expect(sent[exact] < 2 / 3 * sent["ok_topk"], f"{exact} sends {sent[exact]} bytes a step")
        expect(found[exact]["accuracy_mean"] == found["ok_topk"]["accuracy_mean"], f"{exact} learns something else")
    sums = {name: row["summed_max"] for name, row in found.items()}
    expect(k < sums["topka"] <= 4 * k and sums["gtopk"] == k and k <= sums["ok_topk"] <= 1.1 * k, f"sums have {sums}")
    draw = subprocess.run([ROOT / "tools/plot_training", results, "--out", plot], capture_output=True, text=True)
    if draw.returncode != 77:  # 77: matplotlib is not installed
        expect(draw.returncode == 0 and "</svg>" in plot.read_text(), f"the plot: {draw.stderr}")

    # Late ranks: of 4 ranks, by 2, 4, 6 and 8 ms in turn, with steps of 2 ms. 24 steps last 0.24 s if all ranks wait
    # for the last one, and otherwise at least 24 * 7 ms for each rank.
    late = "--limit 800 --epochs 2 --batch 16 --neurons 16,16 --rate 0.2 --step 2ms --delay 2ms:8ms".split()
    late += ["--systems", "dense,eager_solo,eager_majority,quorum:3,quorum:4", "--imbalance"]
    found = train(results, *late, "rotating", command=on_ranks(4))
    expect(len(found) == 5, f"the systems of late ranks are {list(found)}")
    for name, row in found.items():
        expect(set(KEYS) == set(row) and row["ranks_agree"] is True, f"{name}, with late ranks: {row}")
        expect(row["steps"] == 24 and row["parameters"] == 13002, f"{name} makes other steps, with late ranks: {row}")
        waits = name in ("dense", "quorum:4")
        expect(row["step_seconds"] > (0.0095 if waits else 0.007), f"{name} does not wait for the late: {row}")
        expect(abs(row["steps_per_second"] * row["step_seconds"] - 1) < 1e-9, f"{name} has other steps a second: {row}")
        fewest = {"quorum:3": 3}.get(name, 4 if waits else 1)
        expect(fewest <= row["fresh_mean"] <= 4, f"{name} is fresh of {row['fresh_mean']}")
        expect(waits == (row["stale_max"] == 0), f"{name} is late by {row['stale_max']} steps at most")
        expect(0.1 < row["accuracy_mean"] < 0.9, f"{name}, with late ranks, learns {row['accuracy_mean']}")
        seconds = [h["seconds"] for h in row["history"]]
        expect(0 < seconds[0] < seconds[1], f"{name} has the history {row['history']}")
        expect(abs(seconds[1] / 24 - row["step_seconds"]) < 1e-9, f"{name} has other seconds: {row}")
    draw = [ROOT / "tools/plot_training", results, "--out", plot, "--against"]
    if subprocess.run([*draw, "epoch,seconds"], capture_output=True).returncode != 77:
        expect("</svg>" in plot.read_text(), "plot_training --against epoch,seconds wrote no SVG")
        run(*draw, "rank", status=2, says="--against must be some of epoch, bytes, seconds, not rank")
    two = train(results, *late, "random:2", command=on_ranks(4))
    expect(all(row["ranks_agree"] and row["steps"] == 24 for row in two.values()), f"two late ranks: {two}")

    # A second run has the same results bit for bit, except for times; a single rank sends nothing.
    few += ["--systems", "topka,sparcml_q4"]
    one, other = [train(results, *few, command=on_ranks(3)) for _ in range(2)]
    often = train(results, *few, "--tests", "3", "--seeds", "2", command=on_ranks(3))
    for name, row in often.items():
        points = row["history"]
        expect([round(3 * p["epoch"]) for p in points] == [1, 2, 3, 4, 5, 6], f"{name}, tested often: {points}")
        ends = [p["accuracy_by_seed"][0] for p in points[2::3]]
        same = ends == [p["accuracy"] for p in one[name]["history"]]
        expect(same or name == "sparcml_q4", f"{name} learns something else, tested often")  # rounds by call number
        sent = [p["bytes"] for p in points]
        expect(sent == sorted(set(sent)) and row["steps"] == one[name]["steps"], f"{name}, tested often: {row}")
        for point in points:
            for key in ("accuracy", "seconds"):
                seeds = point[key + "_by_seed"]
                expect(len(seeds) == 2 and abs(sum(seeds) / 2 - point[key]) < 1e-9, f"{name}: {point}")
    for row in [*one.values(), *other.values()]:
        for point in row["history"]:
            del point["seconds"], point["seconds_by_seed"]
    expect(all(one[name]["history"] == other[name]["history"] for name in one), f"two runs differ: {one}, {other}")
    gradients = directory / "gradients"
    train(results, *few, "--save-gradients", gradients, command=on_ranks(2))
    values = struct.unpack(f"<{2 * PARAMETERS}f", gradients.read_bytes())
    of_ranks = values[:PARAMETERS], values[PARAMETERS:]
    expect(all(map(math.isfinite, values)), "a saved gradient has values like NaN or infinity")
    expect(any(of_ranks[0]) and any(of_ranks[1]) and of_ranks[0] != of_ranks[1], "saved gradients are zero or equal")
    alone = train(results, *few, command=on_ranks(1))["topka"]
    expect(alone["bytes_per_step"] == 0 and alone["accuracy_mean"] > 0.5, f"a single rank: {alone}")

    # Errors in the arguments and in the data.
    run(*script, "--ranks", "0", status=2, says="--ranks must be a positive number, not 0")
    run(*on_ranks(2), "--systems", "fast", status=2, says="there is no system 'fast'")
    for arguments, says in {
        "--systems fast": "there are: mpi, dense, topka",
        "--systems ok_topk:bf16": "ok_topk takes no quorum",
        "--systems ok_topk+coded:bf16:4": "ok_topk+coded:bf16 takes no quorum",
        "--systems ok_topk+coded:bf16@x": "not 'x'",
        "--systems topka@0": "a density must be above 0 and at most 1, not '0'",
        "--systems topka@x": "not 'x'",
        "--systems dense@0.1": "it takes no density",
        "--systems eager_solo@0.1": "it takes no density",
        "--systems dense:1": "dense takes no quorum",
        "--systems quorum": "quorum needs a number, as in quorum:4",
        "--systems ring+": "unknown codec ''",
        "--systems flexreduce+zfp:8": "there is no system 'flexreduce+zfp:8'",
        "--systems two_shot+zfp:2": "'2' at character 5 of 'zfp:2'; expected a multiple of 0.25 from 4 to 32",
        "--systems ring+zip": "unknown codec 'zip'",
        "--systems ring+bound:0": "the error of bound must be above 0 and below 1, not '0'",
        "--systems ok_topk+zfp:8": "there is no system 'ok_topk+zfp:8'",
        "--systems quorum:x": "a quorum must be a number, not 'x'",
        "--systems quorum:2": "the quorum is 2; expected 1 to 1, the number of ranks",
        "--imbalance some": "--imbalance must be none, random:N, rotating or cloud, not 'some'",
        "--step 20": "--step must be from 0s to 60s, like 1.5s, 32ms or 300us, not '20'",
        "--imbalance rotating --delay 5": "--delay must be from 0s to 60s, like 1.5s, 32ms or 300us, not '5'",
        "--imbalance rotating --delay 5ms:1ms": "must give the shortest delay first",
        "--neurons 3": "--neurons",
        "--epochs 0": "--epochs",
        "--limit 10": "10 training images are too few for one batch of 32 on each of 1 ranks",
        "--rate nan": "'nan' is not a finite number above 0",
        "--json /nonexistent/results.json": "cannot be written",
        "--save-gradients /nonexistent/gradient": "cannot be written",
    }.items():
        run(program, *arguments.split(), status=2, says=says)
    bad.mkdir()
    images, labels = bad / "train-images-idx3-ubyte.gz", bad / "train-labels-idx1-ubyte.gz"
    damaged = [
        (images, b"", "is damaged or truncated"),
        (images, (DATA / images.name).read_bytes()[:10000], "is damaged or truncated"),
        (images, (DATA / labels.name).read_bytes(), "is not an IDX file of bytes with 3 dimensions"),
        (images, idx(1, 28, 27), "has 27 rows or columns, expected 28"),
        (images, idx(1, 28, 28), f"{labels} cannot be read"),
        (labels, idx(1, value=10), "has an image of class 10"),
        (labels, idx(2), "has 1 images of the part train, but 2 labels"),
    ]
    for path, content, says in damaged:
        path.write_bytes(content)
        run(program, "--data", bad, status=2, says=says)

sys.exit(1 if failures else 0)
