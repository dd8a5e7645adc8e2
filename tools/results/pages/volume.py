# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/volume.md."""

import raw
from raw import only, select
from values import VALUES, between, between_plain, table, three_digits, value

TOPK = ["gtopk", "ok_topk", "gaussiank", "topka", "topkdsa"]


def drift(system, ranks):
    r = only(raw.read_json("drift.json"), system=system, ranks=ranks)
    return {"mean": r["words_sent_mean"] / r["nnz_in"], "most": r["words_sent"] / r["nnz_in"],
            "out": r["nnz_out_mean"] / r["nnz_in"]}


@value
def volume():
    lines = []
    for system in TOPK:
        d = {ranks: drift(system, ranks) for ranks in (4, 8)}
        words = [three_digits(d[p][key]) for key in ("mean", "most") for p in (4, 8)]
        lines.append([f"`{system}`", *words, *(f"{d[p]['out']:.2f}" for p in (4, 8))])
    return table(["", "mean, P = 4", "P = 8", "largest, P = 4", "P = 8", "entries of the sum / k, P = 4", "P = 8"],
                 lines)


CODED = ["ok_topk", "ok_topk+coded", "ok_topk+coded:bf16", "ok_topk+pruned"]
GRADIENTS = ["drift", "gaussian", "heavy_0", "heavy_50", "heavy_100"]


def coded(system, pattern, ranks):
    """What a rank sends in the mean, in units of 2 k words."""
    r = only(raw.read_json("volume_coded.json"), system=system, pattern=pattern, ranks=ranks)
    return r["words_sent_mean"] / (2 * r["nnz_in"])


def coded_in_training(system, ranks):
    """The same of a training on Fashion-MNIST."""
    r = only(raw.read_json("volume_images.json"), system=system, ranks=ranks)
    return r["words_per_step"] / (2 * int(r["density"] * r["parameters"]))


def least(pattern, ranks):
    return only(raw.read_json("volume_bound.json"), pattern=pattern, ranks=ranks)["bound"]


def to_other(system, other):
    """What a system sends divided by `other(pattern, ranks)`."""
    return between([coded(system, p, ranks) / other(p, ranks) for p in GRADIENTS for ranks in (4, 8)])


@value
def volume_coded():
    lines = [[f"`{p}`", *(f"{coded(system, p, 4):.2f} / {coded(system, p, 8):.2f}" for system in CODED),
              f"{least(p, 4):.2f} / {least(p, 8):.2f}"] for p in GRADIENTS]
    lines.append(["Fashion-MNIST", *(f"{coded_in_training(system, 4):.2f} / {coded_in_training(system, 8):.2f}"
                                     for system in CODED),
                  f"{least('gradients', 4):.2f} / {least('gradients', 8):.2f}"])
    return table(["P = 4 / 8", *(f"`{system}`" for system in CODED), "bound"], lines)


@value
def volume_training_rest():
    def rest(ranks):
        r = only(raw.read_json("volume_images.json"), system="ok_topk", ranks=ranks)
        entries = (r["selected_mean"] + r["summed_mean"]) * (ranks - 1) / ranks
        return coded_in_training("ok_topk", ranks) - entries / int(r["density"] * r["parameters"])

    return f"{rest(4):.2f} / {rest(8):.2f}"


def simulated(system, ranks=None):
    found = [r for r in raw.read_json("volume.json") if r["system"] == system]
    return only(found, ranks=ranks) if ranks else found


@value
def volume_sparcml_bound():
    found = select(raw.read_json("volume_exact.json"), system="sparcml")
    return between_plain([r["words_sent_mean"] / r["words_bound"] for r in found])


VALUES |= {
    "volume_ok_topk": lambda: three_digits(drift("ok_topk", 8)["mean"]),
    "volume_topka": lambda: three_digits(drift("topka", 8)["mean"]),
    "volume_training_bound":
        lambda: between([coded_in_training("ok_topk+pruned", ranks) / least("gradients", ranks) for ranks in (4, 8)]),
    "volume_coded_bound": lambda: to_other("ok_topk+coded", least),
    "volume_mantissa": lambda: to_other("ok_topk+coded:bf16", lambda pattern, ranks: coded("ok_topk", pattern, ranks)),
    "volume_pruned_bound": lambda: to_other("ok_topk+pruned", least),
    "volume_ok_topk_words": lambda: between_plain([r["words_sent_mean"] / r["nnz_in"] for r in simulated("ok_topk")]),
    "volume_ok_topk_most": lambda: f"{max(r['words_sent_mean'] / r['nnz_in'] for r in simulated('ok_topk')):.1f}",
    "volume_ok_topk_largest": lambda: f"{max(r['words_sent'] / r['nnz_in'] for r in simulated('ok_topk')):.1f}",
    "volume_most_ranks": lambda: f"{max(r['ranks'] for r in simulated('ok_topk')):,}",
}
