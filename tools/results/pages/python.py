# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/python.md."""

import statistics

import raw
from pages.speed import quartiles
from values import number, table, three_digits, value

NAMES = {
    "dense": "gloo",
    "fp16": "gloo, hook `fp16_compress_hook`",
    "powersgd": "gloo, hook `powerSGD_hook` of rank 2",
    "ok_topk": "`ok_topk`, 1 %",
    "two_shot": "`two_shot`, 8 bits",
    "ok_topk+coded": "`ok_topk`, 1 %, `store=\"coded\"`",
}


def seconds(case, system):
    """The seconds of a call, by round."""
    found = [row["seconds"] for row in raw.read_json("python.json") if (row["case"], row["system"]) == (case, system)]
    if not found:
        raise raw.missing(f"python.json: {case}, {system}")
    return found


def relative(case, to):
    """The ratios of a call of Python to `to`, a case and a system, by round."""
    return [of / other for of, other in zip(seconds(case, "spar"), seconds(*to))]


def microseconds(of):
    return three_digits(1e6 * statistics.median(seconds(*of))) + " µs"


@value
def python_calls():
    lines = []
    for name, case, to in [
        ("10,000 of 10^6 entries, against gloo's sparse tensors", "sparse", ("sparse", "gloo")),
        ("10,000 of 10^6 entries, against gloo's dense tensor", "sparse", ("dense", "gloo")),
        ("an embedding's gradient, 200,000 x 32 with 1,750 rows a rank, against gloo's sparse tensors", "rows",
         ("rows", "gloo")),
        ("dense 4 MB, against gloo", "dense", ("dense", "gloo")),
        ("8 bytes, against gloo", "small", ("small", "gloo")),
        ("8 bytes of NumPy, against C++", "small numpy", ("small numpy", "c++")),
    ]:
        lines.append([name, microseconds((case, "spar")), microseconds(to), quartiles(relative(case, to))])
    return table(["", "spar for Python", "the other", "ratio"], lines)


@value
def python_sparse():
    return f"{1 / statistics.median(relative('sparse', ('sparse', 'gloo'))):.0f}"


def trainings(model):
    found = [row for row in raw.read_json("python.json") if row["case"] == model]
    if not found:
        raise raw.missing(f"python.json: {model}")
    return found


def training_table(model):
    rows = trainings(model)
    gloo = rows[0]
    lines = []
    for row in rows:
        accuracies = [f"{100 * of:.1f}" for of in row["accuracies"]]
        lines.append([NAMES[row["system"]], *(f"{1e3 * row[key]:.3g}" for key in ("seconds", "communication")),
                      number(row["seconds"] / gloo["seconds"]), number(row["communication"] / gloo["communication"]),
                      f"{row['bytes'] / 1e6:.3g}", ", ".join(accuracies)])
    return table(["", "ms a step", "ms of communication", "step relative to gloo", "communication relative to gloo",
                  "MB sent a step", "right, %"], lines)


@value
def python_mlp():
    return training_table("mlp")


@value
def python_image_steps():
    return str(trainings("image")[0]["steps"])


@value
def python_image():
    return training_table("image")


@value
def python_embedding():
    return training_table("embedding")
