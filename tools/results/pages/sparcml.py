# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/sparcml.md."""

import json

import raw
from raw import only
from values import VALUES, percent, table, value

HOSTS_OF = {"url_hosts4": "4 hosts, 4 ranks", "url_svm_hosts4": "4 hosts, 4 ranks",
            "webspam_hosts4": "4 hosts, 4 ranks", "url_hosts8x1": "8 hosts, 8 ranks",
            "url_hosts8": "4 hosts, 8 ranks", "url_one4": "one host, 4 ranks"}
SPARSE_SUMS = ["split_allgather", "split_allgather+coded", "rec_doubling"]


def linear(run, system):
    return only(raw.read_json("linear.json")[run], system=system)


def ms_of_exchange(row):
    return 1e3 * row["communicating_seconds"] / row["steps"]


def times_less(run, system):
    """How many times as long the dense exchange of MPI takes: of the means, and least and most of the epochs."""
    dense, sparse = linear(run, "mpi"), linear(run, system)
    key = "communicating_seconds"
    each = [d[key] / s[key] for d, s in zip(dense["history"], sparse["history"])]
    return dense[key] / sparse[key], min(each), max(each)


def dense_to_sparse(run, system):
    return "{:.1f}x ({:.1f} to {:.1f})".format(*times_less(run, system))


@value
def linear_times():
    lines = []
    for run, hosts in HOSTS_OF.items():
        dense = linear(run, "mpi")
        model = "SVM" if dense["model"] == "svm" else "LR"
        lines.append([hosts, f"{dense['set']}, {model}", f"{ms_of_exchange(dense):.0f} ms",
                      *(f"{ms_of_exchange(linear(run, s)):.0f} ms, {dense_to_sparse(run, s)}" for s in SPARSE_SUMS)])
    return table(["ranks", "set, model", "`mpi`", *(f"`{s}`" for s in SPARSE_SUMS)], lines)


@value
def linear_bytes():
    lines = []
    for run, hosts in HOSTS_OF.items():
        dense = linear(run, "mpi")["bytes_per_step"]
        sent = [linear(run, s)["bytes_per_step"] for s in SPARSE_SUMS]
        if run not in ("url_svm_hosts4", "url_hosts8", "url_one4"):
            lines.append([hosts, linear(run, "mpi")["set"], f"{dense / 1e6:.1f} MB",
                          *(f"{x / 1e6:.2f} MB, 1/{dense / x:.1f}" for x in sent)])
    return table(["ranks", "set", "`mpi`", *(f"`{s}`" for s in SPARSE_SUMS)], lines)


@value
def linear_epochs():
    lines = []
    for run, hosts in HOSTS_OF.items():
        rows_of_run = [linear(run, s) for s in ("mpi", "split_allgather+coded")]
        seconds = [[r[key + "_seconds"] for key in ("epoch", "computing", "waiting", "communicating")]
                   for r in rows_of_run]
        dense = rows_of_run[0]
        lines.append([hosts, f"{dense['set']}, {'SVM' if dense['model'] == 'svm' else 'LR'}", f"{dense['steps']}",
                      *(" / ".join(f"{x:.2f}" for x in row) for row in seconds), f"{dense['loss']:.4f}",
                      percent(dense["accuracy"])])
    return table(["ranks", "set, model", "steps", "`mpi`: epoch / computation / waiting / exchange, s",
                  "`split_allgather+coded`", "loss after the last epoch", "samples right"], lines)


def least_to_most(run):
    found = [times_less(run, s)[0] for s in SPARSE_SUMS]
    return f"{min(found):.1f} to {max(found):.1f}"


@value
def linear_apart():
    runs = raw.read_json("linear.json").values()
    return f"{max(r.get('batch_losses_apart', 0) for run in runs for r in run):.0e}"


@value
def linear_scd():
    lines = []
    for run, hosts in {"scd_hosts4": "4 hosts, 4 ranks", "scd_one4": "one host, 4 ranks"}.items():
        dense, sparse = linear(run, "mpi"), linear(run, "allgather")
        lines.append([hosts, *(f"{ms_of_exchange(r):.2f} ms" for r in (dense, sparse)),
                      "{:.0f}x ({:.0f} to {:.0f})".format(*times_less(run, "allgather")),
                      *(f"{r['bytes_per_step'] / 1e3:,.1f} KB" for r in (dense, sparse)),
                      *(f"{r['loss']:.6f}" for r in (dense, sparse))])
    return table(["", "`MPI_Allgatherv`", "`spar::allgather`", "ratio", "bytes of a rank and step", "spar",
                  "loss after the last epoch", "spar"], lines)


@value
def fill_in():
    found = [json.loads(line) for line in raw.text("fill_in.txt").splitlines()]
    ranks = sorted({r["ranks"] for r in found})
    lines = []
    for law, density in dict.fromkeys((r["law"], r["density"]) for r in found):
        these = [only(found, law=law, density=density, ranks=p) for p in ranks]
        lines.append([law.replace("_", " "), f"{100 * density:g} %",
                      *(f"{100 * r['formula']:.2f} / {100 * r['mean']:.2f} %" for r in these)])
    return table(["law", "of a rank", *(f"{p} ranks" for p in ranks)], lines)


VALUES |= {
    "linear_url": lambda: least_to_most("url_hosts4"),
    "linear_eight_hosts": lambda: least_to_most("url_hosts8x1"),
    "linear_webspam": lambda: least_to_most("webspam_hosts4"),
    "linear_scd_ratio": lambda: f"{times_less('scd_hosts4', 'allgather')[0]:.0f}",
}
