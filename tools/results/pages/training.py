# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/training.md."""

import raw
from raw import only
from values import VALUES, percent, table, value


@value
def training():
    lines = []
    for r in raw.read_json("training.json"):
        selected, summed = r["selected_mean"], r["summed_mean"]
        lines.append([f"`{r['system']}`", percent(r["accuracy_mean"]), percent(r["accuracy_min"]),
                      percent(r["accuracy_max"]), f"{r['bytes_per_step']:,.0f}", f"{selected:,.0f}", f"{summed:,.0f}"])
    return table(["", "test accuracy", "lowest of three seeds", "highest", "bytes per rank and step",
                  "entries of a rank, mean", "entries of a sum, mean"], lines)


def trained(system):
    return only(raw.read_json("training.json"), system=system)


def accuracies(*systems):
    return " and ".join(percent(trained(system)["accuracy_mean"]) for system in systems)


def missed(system, what):
    return f"{100 * trained(system)[what + '_deviation']:.1f} %"


@value
def training_spread():
    means = [r["accuracy_mean"] for r in raw.read_json("training.json")]
    return f"{100 * (max(means) - min(means)):.2f}"


SEVEN_BITS = "ok_topk+coded:bf16"


@value
def training_coded_difference():
    difference = 100 * (trained(SEVEN_BITS)["accuracy_mean"] - trained("ok_topk")["accuracy_mean"])
    return f"{abs(difference):.2f} points {'higher' if difference > 0 else 'lower'}"


def over_seeds(system):
    return f"{100 * (trained(system)['accuracy_max'] - trained(system)['accuracy_min']):.2f}"


@value
def training_seeds():
    distances = sorted(over_seeds(r["system"]) for r in raw.read_json("training.json"))
    return f"{distances[0]} to {distances[-1]}"


VALUES |= {
    "training_bytes":
        lambda: f"{100 * trained('ok_topk')['bytes_per_step'] / trained('dense')['bytes_per_step']:.1f} %",
    "training_accuracy": lambda: accuracies("ok_topk", "dense"),
    "training_missed_selected": lambda: missed("ok_topk", "selected"),
    "training_missed_summed": lambda: missed("ok_topk", "summed"),
    "training_missed_gaussiank": lambda: missed("gaussiank", "selected"),
    "training_coded_accuracy": lambda: accuracies(SEVEN_BITS, "ok_topk"),
    "training_coded_bytes":
        lambda: f"{100 * trained(SEVEN_BITS)['bytes_per_step'] / trained('ok_topk')['bytes_per_step']:.0f} %",
    "training_plain_seeds": lambda: over_seeds("ok_topk"),
    "training_coded_seeds": lambda: over_seeds(SEVEN_BITS),
}
