# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of the pages, from the recorded results. VALUES maps the name of a place in a page to a
function that returns its text."""

import json
import re
import statistics
import textwrap

import raw
from raw import only, rows, select

VALUES = {}
LIBRARIES = {"openmpi": "Open MPI", "mpich": "MPICH"}
MI = 2**20


def value(function):
    VALUES[function.__name__] = function
    return function


def number(x):
    """A ratio with two decimals, or three if it is small."""
    return f"{x:.2f}" if x >= 0.105 else f"{x:.3f}"


def between(found):
    low, high = number(min(found)), number(max(found))
    return low if low == high else f"{low} to {high}"


def three_digits(x):
    return f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"


def table(head, lines):
    text = ["| " + " | ".join(line).lstrip() + " |" for line in [head, *lines]]
    text.insert(1, "|" + "---|" * len(head))
    return "\n\n" + "\n".join(text) + "\n\n"


def slower(text):
    """Bold if the first number, a ratio, says that spar is slower."""
    return f"**{text}**" if float(text.split()[0]) > 1 else text


# Speed


def overhead(library, size, key):
    return raw.overheads(f"mpi_overhead_{library}.txt")[size][key]


def small_call(library):
    """Recursive doubling of 8 bytes relative to MPI_Allreduce, with two digits like its factors."""
    o = raw.overheads(f"mpi_overhead_{library}.txt")[8]
    return f"{o['by_hand'] * o['doubling_to_hand'] / o['mpi']:.2g}"


def perf_ratio(library, **wanted):
    return only(rows(f"perf_{library}.txt"), **wanted)["ratio"]


def in_place(ranks, density):
    """The ratio of dense values in place that the selector `nonzeros` moves to a stream."""
    return lambda lib: only(rows(f"in_place_{lib}.txt"), system="nonzeros", ranks=ranks, density=density)["ratio"]


@value
def speed():
    network = lambda library, **wanted: only(rows(f"netperf_{library}.txt"), **wanted)["ratio"]
    drift = dict(zip(LIBRARIES, select(rows("netperf_drift_8_hosts.txt"), system="ok_topk")))
    own = lambda library, n: [r["ratio"] for r in select(rows(f"ok_topk_{library}.txt"), system="ok_topk", n=n)]
    lines = {
        "sparse, density 0.1 %, 2 ranks on one host": lambda lib: perf_ratio(lib, system="sparcml", density=0.001),
        "sparse, density 1 %, 2 ranks on one host": lambda lib: perf_ratio(lib, system="sparcml", density=0.01),
        "sparse, density 30 %, 2 ranks on one host": lambda lib: perf_ratio(lib, system="sparcml", density=0.3),
        **{f"in place with `nonzeros`, density {100 * d:.3g} %, {p} ranks on one host, doubles": in_place(p, d)
           for p in (2, 4) for d in (0.003, 0.022, 0.17, 0.45)},
        "sparse, density 0.1 %, 8 hosts, n = 16 Mi": lambda lib: network(lib, system="sparcml", density=0.001),
        "sparse, density 0.78 %, 8 hosts, n = 16 Mi": lambda lib: network(lib, system="sparcml", density=0.0078),
        "Ok-Topk with k = 1 % and the selection, 8 hosts, n = 16 Mi": lambda lib: drift[lib]["ratio"],
        "the same, 2 ranks on one host, n = 16 Mi": lambda lib: own(lib, 16 * MI),
        "the same, 2 ranks on one host, n = 10^6": lambda lib: own(lib, 10**6),
        "dense 64 MiB by `ring`, 2 ranks on one host": lambda lib: overhead(lib, 64 * MI, "ring_to_mpi"),
        "dense 4 MiB by `ring`, 4 hosts": lambda lib: network(lib, system="ring", ranks=4),
        "dense 4 MiB by `ring`, 2 hosts": lambda lib: network(lib, system="ring", ranks=2),
        "dense 4 MB by default, 2 ranks on one host":
            lambda lib: [r["ratio"] for r in select(rows(f"perf_{lib}.txt"), system="dense")],
        "dense 1 MiB by `ring`, 2 ranks on one host": lambda lib: overhead(lib, MI, "ring_to_mpi"),
        "dense 8 bytes by `recursive_doubling`, 2 ranks on one host": small_call,
    }
    cells = []
    for name, find in lines.items():
        found = [find(library) for library in LIBRARIES]
        texts = [f if isinstance(f, str) else between(f) if isinstance(f, list) else number(f) for f in found]
        cells.append([name, *map(slower, texts)])
    return table(["", "Open MPI 4.1.4", "MPICH 4.0.2"], cells)


@value
def speed_readme():
    """The rows of `speed` that show where spar is fast, and where it is slow."""
    head, rule, *lines = speed().strip().split("\n")
    shown = ["0.1 %, 2 ranks", "density 1 %", "30 %", "0.3 %, 2", "2.2 %, 2", "17 %, 2", "2.2 %, 4", "Ok-Topk",
             "64 MiB", "ring`, 4 hosts", "1 MiB", "8 bytes"]
    return "\n\n" + "\n".join([head, rule, *(l for l in lines if any(s in l for s in shown))]) + "\n\n"


@value
def speed_sparse():
    return number(perf_ratio("openmpi", system="sparcml", density=0.01))


@value
def speed_sparse_libraries():
    return " and ".join(number(perf_ratio(library, system="sparcml", density=0.01)) for library in LIBRARIES)


@value
def speed_small_vector():
    return number(overhead("openmpi", MI, "ring_to_mpi"))


@value
def speed_small_call():
    return small_call("openmpi")


@value
def speed_topk():
    first = select(rows("netperf_drift_8_hosts.txt"), system="ok_topk")
    return " and ".join(f"{1e3 * r['seconds']:.0f} ms" for r in first)


@value
def speed_rounding_one_host():
    return between([r["ratio"] for r in one_host() if r["system"] == "dsar_qsgd8"])


@value
def speed_rounding_hosts():
    return between([r["ratio"] for r in rows("choosing_4_hosts.txt") if r["system"] == "dsar_qsgd8"])


def one_host():
    heading = "one host, 2 ranks: --network, --systems sparcml,allgather,dsar_qsgd8,dsar_qsgd2,dense,mpi"
    return select(rows("choice_openmpi.txt"), heading=heading)


# Volume

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


@value
def volume_ok_topk():
    return three_digits(drift("ok_topk", 8)["mean"])


@value
def volume_topka():
    return three_digits(drift("topka", 8)["mean"])


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
def volume_training_bound():
    return between([coded_in_training("ok_topk+pruned", ranks) / least("gradients", ranks) for ranks in (4, 8)])


@value
def volume_training_rest():
    def rest(ranks):
        r = only(raw.read_json("volume_images.json"), system="ok_topk", ranks=ranks)
        entries = (r["selected_mean"] + r["summed_mean"]) * (ranks - 1) / ranks
        return coded_in_training("ok_topk", ranks) - entries / int(r["density"] * r["parameters"])

    return f"{rest(4):.2f} / {rest(8):.2f}"


@value
def volume_coded_bound():
    return to_other("ok_topk+coded", least)


@value
def volume_mantissa():
    return to_other("ok_topk+coded:bf16", lambda pattern, ranks: coded("ok_topk", pattern, ranks))


@value
def volume_pruned_bound():
    return to_other("ok_topk+pruned", least)


def simulated(system, ranks=None):
    found = [r for r in raw.read_json("volume.json") if r["system"] == system]
    return only(found, ranks=ranks) if ranks else found


@value
def volume_ok_topk_words():
    return between_plain([r["words_sent_mean"] / r["nnz_in"] for r in simulated("ok_topk")])


@value
def volume_ok_topk_most():
    return f"{max(r['words_sent_mean'] / r['nnz_in'] for r in simulated('ok_topk')):.1f}"


@value
def volume_ok_topk_largest():
    return f"{max(r['words_sent'] / r['nnz_in'] for r in simulated('ok_topk')):.1f}"


@value
def volume_sparcml_bound():
    found = select(raw.read_json("volume_exact.json"), system="sparcml")
    return between_plain([r["words_sent_mean"] / r["words_bound"] for r in found])


@value
def volume_most_ranks():
    return f"{max(r['ranks'] for r in simulated('ok_topk')):,}"


def between_plain(found):
    return f"{min(found):.2f} to {max(found):.2f}"


# Scaling


def scaling_row(system, ranks):
    return only(raw.read_json("scaling.json"), system=system, ranks=ranks)


def milliseconds(system, ranks):
    return f"{1e3 * scaling_row(system, ranks)['seconds']:.2f} ms"


@value
def scaling_few_ranks():
    return f"{milliseconds('sparcml', 16)} (`dense` {milliseconds('dense', 16)})"


@value
def scaling_many_ranks():
    return f"{milliseconds('sparcml', 4096)} (`dense` {milliseconds('dense', 4096)})"


@value
def scaling_coded():
    return f"{milliseconds('sparcml+coded', 1024)} on 1024 ranks (`sparcml` {milliseconds('sparcml', 1024)})"


@value
def scaling_coded_16():
    found = raw.read_json("choosing_ranks.json")
    return " and ".join(f"{1e3 * only(found, system=system, ranks=16)['seconds']:.1f} ms"
                        for system in ("sparcml+coded", "sparcml"))


@value
def scaling_entries():
    r = scaling_row("sparcml", 4096)
    return f"{100 * r['nnz_out'] / r['n']:.0f} %"


@value
def scaling_gtopk():
    return milliseconds("gtopk", 4096)


@value
def scaling_ok_topk():
    r = max((r for r in raw.read_json("scaling.json") if r["system"] == "ok_topk"), key=lambda r: r["ranks"])
    return f"{1e3 * r['seconds']:.2f} ms on {r['ranks']} ranks"


@value
def scaling_topk_ratio():
    model = {r["ranks"]: r for r in raw.read_json("topk_crossover.json") if r["link"] == "1 Gbit/s"}
    return between([model[r["ranks"]][r["system"]] / r["seconds"] for r in raw.read_json("scaling_topk.json")])


@value
def scaling_pruned_from():
    found = [only(raw.read_json("topk_crossover.json"), link="100 Mbit/s", ranks=p) for p in (8, 64, 4096)]
    first, second, last = (f"{r['pruned_from']:,} on {r['ranks']}" for r in found)
    return f"{first}, {second} and {last} ranks"


@value
def scaling_pruned_gbit():
    return f"{only(raw.read_json('topk_crossover.json'), link='1 Gbit/s', ranks=8)['pruned_from']:,}"


@value
def scaling_pruned_ranks():
    return str(max(r["ranks"] for r in select(raw.read_json("topk_crossover.json"), link="1 Gbit/s")
                   if r["pruned_from"] > 0))


def share_of_dense(system):
    return f"{100 * scaling_row(system, 4096)['seconds'] / scaling_row('dense', 4096)['seconds']:.0f} %"


@value
def scaling_share_gtopk():
    return share_of_dense("gtopk")


@value
def scaling_share_sparcml():
    return share_of_dense("sparcml")


@value
def scaling():
    """The fastest systems by SimGrid, and by the simulator where it names another one."""
    lines = []
    for platform, ranks in dict.fromkeys((r["platform"], r["ranks"]) for r in raw.simgrid()):
        cells = []
        for density in (0.001, 0.01, 0.1, 1):
            cell = (platform, ranks, density)
            found = [r for r in raw.simgrid() if (r["platform"], r["ranks"], r["density"]) == cell]
            if not found:
                cells.append("-")
                continue
            r = found[0]
            other = "" if r["ours"] == r["theirs"] else r["ours"] + " "
            text = f"{r['theirs']} {r['theirs_ahead']:.0f} %; {other}{r['ours_ahead']:.0f} %"
            cells.append(f"**{text}**" if other and min(r["theirs_ahead"], r["ours_ahead"]) > 5 else text)
        lines.append([f"{platform}, {ranks}", *cells])
    return table(["density", "0.001", "0.01", "0.1", "1"], lines)


def within(hosts, link, least=0.8):
    cells = [r for r in raw.predictions() if (r["hosts"], r["link"]) == (hosts, link) and r["megabytes"] >= least]
    return f"{sum(round(abs(r['ratio'] - 1), 2) <= 0.1 for r in cells)} of {len(cells)}"


@value
def scaling_within_4():
    return within(4, "1gbit")


@value
def scaling_within_8():
    return within(8, "250mbit")


@value
def scaling_within_8_fast():
    return within(8, "1gbit")


# Ok-Topk

SCALED = ["dense", "dense_overlap", "topka", "topkdsa", "gtopk", "gaussiank", "ok_topk"]
NETWORKS = {"aries": "Aries", "1gbit": "1 Gbit/s"}


def scaled(network, system, n=MI):
    """The simulated rows of a system by the number of ranks."""
    found = [r for r in raw.read_json("ok_topk.json") if (r["network"], r["system"], r["n"]) == (network, system, n)]
    return {r["ranks"]: r for r in sorted(found, key=lambda r: r["ranks"])}


def ranks_scaled(n=MI):
    return list(scaled("aries", "ok_topk", n))


def computation_of(network, n=MI):
    return scaled(network, "dense_overlap", n)[32]["computation"]


def call_seconds(network, system, ranks, n=MI):
    """The median call that reuses thresholds; of the overlapped allreduce, what the computation does not hide."""
    r = scaled(network, system, n)[ranks]
    return statistics.median(r["times"][1:]) if "times" in r else r["seconds"] - r["computation"]


def times(ratio):
    """A ratio with two digits."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}"


def in_ms(seconds):
    """Milliseconds with three digits, or all digits before the point."""
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.9995 else f"{1e3 * seconds:.3g}"


def slower_than_ok_topk(network, ranks, computation=0.0):
    """How many times as long as with Ok-Topk a step takes with each other system, with the fastest of them first."""
    own = computation + call_seconds(network, "ok_topk", ranks)
    found = {system: (computation + call_seconds(network, system, ranks)) / own for system in SCALED[:-1]
             if ranks in scaled(network, system)}
    if not computation:
        del found["dense_overlap"]
    return sorted(found.items(), key=lambda item: item[1])


def scaled_table(network, n=MI):
    lines = []
    for system in SCALED:
        cells = []
        for ranks in ranks_scaled(n):
            r = scaled(network, system, n).get(ranks)
            if not r:
                cells.append("-")
                continue
            text = in_ms(call_seconds(network, system, ranks, n))
            low, high = (in_ms(pick(r.get("times", [0]))) for pick in (min, max))
            cells.append(text if low == high else f"{text} ({low} to {high})")
        lines.append([f"`{system}`" if system != "dense_overlap" else "`dense`, what is not hidden", *cells])
    return table(["ms", *(f"P = {ranks}" for ranks in ranks_scaled(n))], lines)


@value
def ok_topk_aries():
    return scaled_table("aries")


@value
def ok_topk_1gbit():
    return scaled_table("1gbit")


@value
def ok_topk_most_ranks():
    return str(ranks_scaled()[-1])


@value
def ok_topk_slower():
    found = slower_than_ok_topk("aries", ranks_scaled()[-1])
    return f"{times(found[0][1])} to {times(found[-1][1])}"


@value
def ok_topk_computation():
    return " and ".join(f"{1e3 * computation_of(network):.2g} ms" for network in NETWORKS)


@value
def ok_topk_calls():
    calls = {}
    for ranks, r in scaled("aries", "ok_topk").items():
        calls.setdefault(r["iterations"], []).append(str(ranks))
    return ", ".join(f"{count} calls on {' and '.join(ranks)}" for count, ranks in calls.items()) + " ranks"


@value
def ok_topk_steps():
    """Ratios of steps and of allreduces, beside the ranges that the paper states."""

    def range_of(found):
        (fastest, low), *_, (slowest, high) = found
        return f"{times(low)} (`{fastest}`) to {times(high)} (`{slowest}`)"

    paper = {32: ("VGG-16, density 2 % (figure 8)", "1.51 to 8.83"),
             64: ("LSTM, density 2 % (figure 10)", "1.34 to 7.71"),
             256: ("BERT, density 1 % (figure 12)", "3.29 to 12.95")}
    lines = []
    for ranks in ranks_scaled():
        model, stated = paper.get(ranks, ("", "-"))
        cells = [range_of(slower_than_ok_topk(network, ranks, computation)) for network in NETWORKS
                 for computation in (computation_of(network), 0)]
        lines.append([f"{ranks} ranks" + (f"; paper: {model}" if model else ""), stated, *cells])
    for system, hours, stated in (("dense_overlap", "150 hours to 47", "3.19"), ("gaussiank", "", "1.30")):
        cells = []
        for network in NETWORKS:
            cells += [times(dict(slower_than_ok_topk(network, 32, computation))[system])
                      if computation or system != "dense_overlap" else "-"
                      for computation in (computation_of(network), 0)]
        name = "`dense` overlapped" if system == "dense_overlap" else f"`{system}`"
        lines.append([f"32 ranks, {name}; paper: BERT (figure 13)", stated, *cells])
    if 256 in ranks_scaled():
        cells = []
        for network in NETWORKS:
            few, many = (call_seconds(network, "ok_topk", ranks) + computation_of(network) for ranks in (32, 256))
            cells += [f"{100 * few / many:.0f} %", "-"]
        lines.append(["parallel efficiency of `ok_topk`, 32 to 256 ranks; paper: BERT (figure 12)", "76.3 %", *cells])
    head = ["", "paper", *(f"{what}, {name}" for name in NETWORKS.values() for what in ("step", "allreduce"))]
    return table(head, lines)


def without_term(network, system, term):
    """Milliseconds of the second and third call on 64 ranks, with a term of the network or without it."""
    r = scaled(f"{network} without {term}" if term else network, system)[64]
    return in_ms(statistics.median(r["times"][1:3]))


@value
def ok_topk_terms():
    lines = [[f"`{system}`", *(without_term(network, system, term) for network in NETWORKS
                               for term in ("", "alpha", "beta", "gamma"))]
             for system in ("dense", "topkdsa", "gtopk", "ok_topk")]
    head = [what for name in NETWORKS.values() for what in (f"{name}: all", "no latency", "no bytes", "no local work")]
    return table(["ms", *head], lines)


@value
def ok_topk_gaussiank_entries():
    sent = {system: scaled("aries", system) for system in ("gaussiank", "topka")}
    return between_plain([r["words_sent_mean"] / sent["topka"][ranks]["words_sent_mean"]
                          for ranks, r in sent["gaussiank"].items()])


@value
def ok_topk_large():
    lines = []
    for system in ("dense", "topkdsa", "gtopk", "ok_topk"):
        cells = []
        for network in NETWORKS:
            own, few = (call_seconds(network, system, 32, n) for n in (16 * MI, MI))
            least, small = (call_seconds(network, "ok_topk", 32, n) for n in (16 * MI, MI))
            cells += [in_ms(own), f"{times(own / least)} ({times(few / small)})"]
        lines.append([f"`{system}`", *cells])
    head = [what for name in NETWORKS.values() for what in (f"{name}: ms", "/ `ok_topk` (n = 1 Mi)")]
    return table(["", *head], lines)


def selected_counts():
    return {r["system"]: r for r in raw.read_json("selected_counts.json")}


@value
def ok_topk_selected():
    lines = []
    for name, r in selected_counts().items():
        k = round(r["parameters"] * r["density"])
        windows = [r["selected"][round((len(r["selected"]) - 1) * part)] for part in (0, 0.1, 0.5, 1)]
        own, unadjusted = name.split(",")[0], ", unadjusted" if "," in name else ""
        lines.append([f"`{own}`{unadjusted}", f"{100 * r['selected_deviation']:.1f} %",
                      *(f"{count:,.0f}" if count > 10 else f"{count:.1f}" for count in windows),
                      number(statistics.mean(r["summed"]) / k)])
    return table(["", "mean deviation from k", "selected, first 32 steps", "after a tenth", "after half", "last steps",
                  "entries of the sum / k, mean"], lines)


@value
def ok_topk_selected_k():
    r = selected_counts()["ok_topk"]
    return f"{r['parameters'] * r['density']:,.0f}"


@value
def ok_topk_selected_off():
    return f"{100 * selected_counts()['ok_topk']['selected_deviation']:.1f} %"


# Ok-Topk: time to an accuracy

HOSTS_OF_TRAINING = [(hosts, link) for hosts in (4, 8) for link in ("1gbit", "100mbit")]
TRAINED_OVER_HOSTS = ["dense", "dense+overlap", "topka", "topka+overlap", "topkdsa", "gtopk", "gaussiank", "ok_topk",
                      "ok_topk+overlap"]


def trained_over(system, hosts, link):
    return only(raw.read_json("time_to_accuracy.json"), system=system, ranks=hosts, link=link)


def network_name(hosts, link):
    return f"{hosts} hosts, {link.replace('gbit', ' Gbit/s').replace('mbit', ' Mbit/s')}"


def seconds_to(accuracy, row):
    """Seconds of the steps until a seed's training has the accuracy first, interpolated between two measurements; for
    each seed that reaches it."""
    found = []
    for seed in range(row["seeds"]):
        points = [(0, 0)] + [(h["accuracy_by_seed"][seed], h["seconds_by_seed"][seed]) for h in row["history"]]
        for (before, start), (after, end) in zip(points, points[1:]):
            if after >= accuracy:
                found.append(start + (end - start) * (accuracy - before) / (after - before))
                break
    return found


def median_and_range(found, seeds, form="{:.3g}"):
    if not found:
        return "never"
    text = form.format(statistics.median(found))
    if len(found) > 1:
        text += f" ({form.format(min(found))} to {form.format(max(found))})"
    return text if len(found) == seeds else f"{text}, {len(found)} of {seeds} seeds"


def times_to(accuracy):
    lines = []
    for system in TRAINED_OVER_HOSTS:
        cells = [trained_over(system, *network) for network in HOSTS_OF_TRAINING]
        lines.append([f"`{system}`", *(median_and_range(seconds_to(accuracy, r), r["seeds"]) for r in cells)])
    return table([f"s to {100 * accuracy:.0f} %", *(network_name(*network) for network in HOSTS_OF_TRAINING)], lines)


@value
def ok_topk_time_85():
    return times_to(0.85)


@value
def ok_topk_time_88():
    return times_to(0.88)


@value
def ok_topk_training_phases():
    lines = []
    for system in TRAINED_OVER_HOSTS:
        cells = []
        for network in HOSTS_OF_TRAINING:
            r = trained_over(system, *network)
            parts = [1e3 * r[f"{phase}_seconds"] for phase in ("computing", "selecting", "communicating")]
            cells.append(" + ".join(f"{x:.1f}" for x in parts) + f"; {1e3 * r['step_seconds']:.1f}")
        lines.append([f"`{system}`", *cells])
    return table(["ms a step", *(network_name(*network) for network in HOSTS_OF_TRAINING)], lines)


@value
def ok_topk_training_accuracy():
    lines = []
    for system in TRAINED_OVER_HOSTS:
        of = [trained_over(system, hosts, "1gbit") for hosts in (4, 8)]
        lines.append([f"`{system}`", *(f"{percent(r['accuracy_mean'])} ({percent(r['accuracy_min'])} to "
                                       f"{percent(r['accuracy_max'])})" for r in of)])
    return table(["", "4 ranks", "8 ranks"], lines)


def sooner_than_dense(system, accuracy, hosts, link):
    """How many times as long the dense sum takes to reach the accuracy, medians over the seeds."""
    dense, other = (statistics.median(seconds_to(accuracy, trained_over(name, hosts, link)))
                    for name in ("dense", system))
    return dense / other


@value
def ok_topk_sooner_85():
    return ", ".join(f"{sooner_than_dense('ok_topk', 0.85, *network):.2g}" for network in HOSTS_OF_TRAINING)


@value
def ok_topk_first_85():
    """The system that reaches 85 % first, on each network."""
    first = [min(TRAINED_OVER_HOSTS, key=lambda system: statistics.median(
        seconds_to(0.85, trained_over(system, *network)))) for network in HOSTS_OF_TRAINING]
    return ", ".join(f"`{system}`" for system in first)


@value
def ok_topk_xi():
    lines = []
    for system in ("topka", "topkdsa", "gtopk", "gaussiank", "ok_topk", "ok_topk+overlap"):
        for ranks in (4, 8):
            history = [h for h in trained_over(system, ranks, "1gbit")["history"] if h["xi_max"] > 0]
            epochs = [[h for h in history if epoch < h["epoch"] <= epoch + 1] for epoch in range(4)]
            lines.append([f"`{system}`", str(ranks),
                          *(f"{statistics.mean(h['xi_mean'] for h in e):.2f} ({max(h['xi_max'] for h in e):.2f})"
                            for e in epochs)])
    return table(["mean (largest)", "P", "epoch 1", "epoch 2", "epoch 3", "epoch 4"], lines)


@value
def ok_topk_overlap():
    """Three runs of the larger model; the share that is hidden, as the median and the range."""
    lines = []
    for system in ("dense+overlap", "topka+overlap", "ok_topk+overlap"):
        runs = overlap_runs(system)
        parts = [1e3 * statistics.median(r[f"{phase}_seconds"] for r in runs)
                 for phase in ("computing", "selecting", "communicating")]
        step = 1e3 * statistics.median(r["step_seconds"] for r in runs)
        shares = [median_and_range([100 * r[key] for r in runs], len(runs), "{:.0f}")
                  for key in ("hidden", "hidden_ideal")]
        lines.append([f"`{system}`", *(f"{x:.1f}" for x in [*parts, step]), *(f"{share} %" for share in shares)])
    return table(["ms", "computing", "selecting", "communicating", "step with overlap", "hidden", "ideal"], lines)


def overlap_runs(system, link="1gbit"):
    return select(raw.read_json("overlap_training.json"), system=system, link=link)


@value
def ok_topk_overlap_plain():
    return f"{1e3 * statistics.median(r['step_seconds'] for r in overlap_runs('ok_topk')):.0f}"


@value
def ok_topk_overlap_bytes():
    return f"{8e3 * overlap_runs('ok_topk')[0]['bytes_per_step'] / 1e9:.1f}"


@value
def ok_topk_overlap_slow():
    found = {name: 1e3 * statistics.median(r["step_seconds"] for r in overlap_runs(name, "100mbit"))
             for name in ("ok_topk", "ok_topk+overlap", "topka", "topka+overlap")}
    return ", ".join(f"{found[name + '+overlap']:.0f} instead of {found[name]:.0f} ms with `{name}`"
                     for name in ("ok_topk", "topka"))


# FlexReduce

HOSTS = ["2,2", "2,3", "3,3", "3,4", "4,4", "3,3,3", "3,3,4", "3,4,4", "4,4,4"]


def on_tree(hosts, system):
    return only(rows("netperf_flexreduce.txt"), heading=f"--hosts {hosts}", system=system)


def slow_links(hosts, system):
    """Seconds of each run with packets of 16 frames."""
    return [r["seconds"] for r in rows("netperf_flexreduce_25mbit.txt", until="# Before, when packets were")
            if r["heading"].startswith(f"--hosts {hosts} ") and r["system"] == system]


def possible(hosts):
    """Share of the ring's time that the bytes on the hosts' links allow to save: each link carries 2 n (d - 1) / d
    values instead of the ring's 2 n (P - 1) / P."""
    sizes = [int(h) for h in hosts.split(",")]
    ring, tree = 1 - 1 / sum(sizes), 1 - 1 / len(sizes)
    return 1 - tree / ring


def saved_of_possible(hosts):
    flexreduce, ring = (statistics.median(slow_links(hosts, s)) for s in ("flexreduce", "ring"))
    return (1 - flexreduce / ring) / possible(hosts)


@value
def flexreduce_share():
    found = [100 * saved_of_possible(hosts) for hosts in HOSTS]
    return f"{min(found):.0f} to {max(found):.0f} %"


@value
def flexreduce():
    lines = {"`flexreduce`, s": [], "`hierarchical`, s": [], "`ring`, s": [], "saved against the ring": [],
             "at most possible": [], "share of the possible": []}
    for hosts in HOSTS:
        seconds = {s: statistics.median(slow_links(hosts, s)) for s in ("flexreduce", "hierarchical", "ring")}
        saved = 1 - seconds["flexreduce"] / seconds["ring"]
        cells = [*(f"{seconds[s]:.2f}" for s in seconds), f"{100 * saved:.1f} %", f"{100 * possible(hosts):.1f} %",
                 f"{100 * saved_of_possible(hosts):.0f} %"]
        for line, cell in zip(lines.values(), cells):
            line.append(cell)
    return table(["ranks on the hosts", *(h.replace(",", ", ") for h in HOSTS)],
                 [[name, *cells] for name, cells in lines.items()])


@value
def flexreduce_saved():
    return f"{100 * (1 - on_tree('2,3', 'flexreduce')['seconds'] / on_tree('2,3', 'ring')['seconds']):.0f} %"


@value
def flexreduce_uneven():
    both = [on_tree("2,3", s)["seconds"] for s in ("flexreduce", "blueconnect")]
    return " s, `blueconnect` ".join(f"{s:.2f}" for s in both) + " s"


def simulated_tree(density, system):
    return only(raw.read_json("flexreduce.json"), density=density, system=system)


@value
def flexreduce_streams():
    return " MB and ".join(f"{simulated_tree(0.01, s)['root_link_bytes'] * 1e-6:.1f}"
                           for s in ("ssar_split", "tree_sparcml")) + " MB"


@value
def flexreduce_emulated():
    systems = ("ssar_split", "tree_sparcml")
    return ", ".join(f"`{s}` {1e3 * raw.on_emulated_tree()[s]:.1f} ms" for s in systems)


def tree_to_flat(ratios):
    *first, last = (f"{r:.2f}" for r in ratios)
    return f"{', '.join(first)} and {last}"


@value
def flexreduce_ok_topk():
    """Times of `tree_ok_topk` divided by those of `ok_topk`: medians of steps with drifting gradients."""
    return tree_to_flat(only(raw.read_json("tree_ok_topk.json"), system="tree_ok_topk", n=MI, density=d)
                        ["against_reference"]["ratio"] for d in (0.001, 0.003, 0.01, 0.03))


@value
def flexreduce_ok_topk_first():
    return tree_to_flat(simulated_tree(d, "tree_ok_topk")["seconds"] / simulated_tree(d, "ok_topk")["seconds"]
                        for d in (0.001, 0.003, 0.01, 0.03))


@value
def flexreduce_ok_topk_few():
    found = only(raw.read_json("tree_ok_topk.json"), system="tree_ok_topk", n=MI // 4)["against_reference"]
    return f"{found['ratio']:.2f} (interval {found['lowest']:.2f} to {found['highest']:.2f})"


@value
def flexreduce_ok_topk_emulated():
    return number(raw.on_emulated_tree()["tree_ok_topk"] / raw.on_emulated_tree()["ok_topk"])


def over_hosts(part, **wanted):
    """Rows of a part of bench/training_hosts.py; none if it has no such run."""
    found = raw.read_json("training_hosts.json")[part]["rows"]
    return [row for row in found if all(row.get(key) == its for key, its in wanted.items())]


def how_run(*parts):
    short = any(raw.read_json("training_hosts.json")[part]["short"] for part in parts)
    return "a short run while other programs used the machine" if short else "nothing else running"


VALUES |= {"flexreduce_sizes_run": lambda: how_run("sizes"),
           "flexreduce_training_run": lambda: how_run("images", "preloaded"),
           "preload_training_run": lambda: how_run("codecs")}


def epochs_of(found):
    """Seconds of each epoch of these rows."""
    ends = [[0, *(h["seconds"] for h in row["history"])] for row in found]
    return [end - begin for each in ends for begin, end in zip(each, each[1:])]


def with_range(found, form="{:.2f}"):
    """The median of some measurements, the lowest and the highest."""
    return "{} ({} to {})".format(*(form.format(x) for x in (statistics.median(found), min(found), max(found))))


def saved_of(found, reference):
    """The share of the median reference that the median saves."""
    return 1 - statistics.median(found) / statistics.median(reference)


def percents_between(shares):
    low, high = (f"{100 * x:.0f}" for x in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


TRAINED = {"`images`": ("images", {"step": 0}, "mpi"), "`plain_mpi`": ("preloaded", {}, "own"),
           "`images`, computation of 100 ms": ("images", {"step": 0.1}, None)}
UNEVEN = ("2,3", "3,3,4")


def epochs_over(part, chosen, hosts, system):
    return epochs_of(over_hosts(part, hosts=hosts, system=system, **chosen))


def saved_of_epochs(program):
    part, chosen, _ = TRAINED[program]
    return [saved_of(*(epochs_over(part, chosen, hosts, s) for s in ("flexreduce", "ring"))) for hosts in UNEVEN]


@value
def flexreduce_training():
    systems = ("ring", "hierarchical", "blueconnect", "flexreduce")
    lines = []
    for program, (part, chosen, mpi) in TRAINED.items():
        for hosts, saved in zip(UNEVEN, saved_of_epochs(program)):
            seconds = [epochs_over(part, chosen, hosts, s) for s in (mpi, *systems)]
            lines.append([program, hosts.replace(",", ", "), *(with_range(x) if x else "" for x in seconds),
                          f"{100 * saved:.0f} %"])
    return table(["program", "ranks on the hosts", "`MPI_Allreduce`, s", *(f"`{s}`, s" for s in systems),
                  "`flexreduce` saves of the ring's"], lines)


VALUES |= {"flexreduce_epochs": lambda: percents_between([*saved_of_epochs("`images`"),
                                                          *saved_of_epochs("`plain_mpi`")]),
           "flexreduce_epochs_computing": lambda: percents_between(saved_of_epochs("`images`, computation of 100 ms"))}


@value
def flexreduce_epoch_images():
    row = over_hosts("images", hosts="2,3", system="ring")[0]
    return f"{row['steps'] * 32 * row['ranks']:,}"


@value
def flexreduce_epoch_exchange():
    """The share of the exchange in the steps with the ring, where computation takes 100 ms."""
    found = over_hosts("images", system="ring", step=0.1)
    return percents_between([r["communicating_seconds"] / (r["communicating_seconds"] + r["computing_seconds"])
                             for r in found])


def of_size(hosts, n, system):
    return only(over_hosts("sizes"), hosts=hosts, n=n, system=system)["seconds"]


def size_hosts():
    return list(dict.fromkeys(r["hosts"] for r in over_hosts("sizes")))


def all_sizes():
    return sorted({r["n"] for r in over_hosts("sizes")})


@value
def flexreduce_sizes():
    lines = []
    for hosts in size_hosts():
        for system in ("flexreduce", "hierarchical", "blueconnect", "mpi"):
            saved = [1 - of_size(hosts, n, system) / of_size(hosts, n, "ring") for n in all_sizes()]
            lines.append([hosts.replace(",", ", "), f"`{system}`", *(f"{100 * x:.0f}" for x in saved)])
    return table(["ranks on the hosts", "% saved of the ring's time", *(f"{4 * n // MI} MiB" for n in all_sizes())],
                 lines)


@value
def flexreduce_sizes_saved():
    return percents_between([1 - of_size(hosts, n, "flexreduce") / of_size(hosts, n, "ring")
                             for hosts in size_hosts() for n in all_sizes()])


@value
def flexreduce_sizes_linear():
    """Milliseconds of an MiB with FlexReduce, over all sizes, by hosts."""
    per_mib = [[1e3 * of_size(hosts, n, "flexreduce") / (4 * n / MI) for n in all_sizes()] for hosts in size_hosts()]
    return ", ".join(f"{min(x):.1f} to {max(x):.1f}" for x in per_mib)


def tree_seconds(tree, system):
    return only(over_hosts("levels"), tree=tree, system=system)


def trees():
    return list(dict.fromkeys(r["tree"] for r in over_hosts("levels")))


@value
def flexreduce_levels():
    systems = ("ring", "blueconnect", "hierarchical", "flexreduce", "tree_dense")
    lines = []
    for tree in trees():
        its = {s: tree_seconds(tree, s) for s in systems}
        own = its["flexreduce"]
        lines.append([tree, *(f"{1e3 * r['seconds']:.1f}" for r in its.values()),
                      f"{own['seconds'] / own['model_seconds']:.2f}", f"{own['calls_mean']:.2f}, {own['calls_max']}"])
    return table(["tree", *(f"`{s}`, ms" for s in systems), "`flexreduce` / model", "its calls: mean, most"], lines)


def to_the_ring(tree):
    return number(tree_seconds(tree, "flexreduce")["seconds"] / tree_seconds(tree, "ring")["seconds"])


VALUES |= {"flexreduce_levels_racks": lambda: ", ".join(to_the_ring(tree) for tree in trees()
                                                        if tree.startswith("racks")),
           "flexreduce_levels_sockets": lambda: to_the_ring("sockets, 1 Gbit/s"),
           "flexreduce_levels_hierarchical": lambda: between(
               [tree_seconds(tree, "hierarchical")["seconds"] / tree_seconds(tree, "flexreduce")["seconds"]
                for tree in trees()])}


# Late ranks


@value
def late_ranks():
    mean = {name: found["mean"] for name, found in raw.latencies().items()}
    systems = {"mpi": "MPI_Allreduce", "eager_majority": "`eager_majority`", "eager_solo": "`eager_solo`"}
    times = [f"{1e3 * mean[s]:.0f}" if mean[s] > 0.01 else f"{1e3 * mean[s]:.2f}" for s in systems]
    gains = [mean["mpi"] / mean[s] for s in systems]
    return table(["", *systems.values()],
                 [["mean time of a call, ms", *times],
                  ["times as fast as MPI_Allreduce", *(f"{g:.2f}" if 1 < g < 10 else f"{g:.0f}" for g in gains)],
                  ["ranks whose own call is in the result, of 32",
                   *(f"{raw.latencies()[s]['active']:g}" for s in systems)],
                  ["times as fast in the paper", "1", "2.46", "53"]])


@value
def late_majority():
    mean = {name: found["mean"] for name, found in raw.latencies().items()}
    return f"{mean['mpi'] / mean['eager_majority']:.2f}"


@value
def late_overhead():
    """Times of a partial Rabenseifner in which nobody is late, relative to Rabenseifner's algorithm."""
    pairs = [[r["seconds"] for r in rows("late_ranks_quiet.txt") if r["system"] == system]
             for system in ("eager_solo+rabenseifner", "rabenseifner")]
    return between([partial / whole for partial, whole in zip(*pairs)])


def hyperplane(participation, delay, name="hyperplane_quiet.txt"):
    return next(r for r in raw.hyperplane(name) if r["participation"] == participation and r["delay"] == delay)


@value
def late_hyperplane():
    return ", ".join(f"{hyperplane('solo', d)['ratio']:.2f}" for d in (0.02, 0.03, 0.04))


@value
def late_loss():
    found = [r["loss"] for r in raw.hyperplane("hyperplane_quiet.txt") if r["participation"] == "solo"]
    everyone = {r["loss"] for r in raw.hyperplane("hyperplane_quiet.txt") if r["participation"] == "everyone"}
    return f"{min(found):.2f} to {max(found):.2f}, and with `everyone` {min(everyone):.2f}"


def late_training(system):
    return only(raw.read_json("training_late.json"), system=system)


def percent(x):
    return f"{100 * x:.2f} %"


def of_training(system):
    """Adds the accuracy and the time of a step of a system to VALUES."""
    name = system.replace(":", "_").replace("eager_", "")
    VALUES[f"late_accuracy_{name}"] = lambda: percent(late_training(system)["accuracy_mean"])
    VALUES[f"late_step_{name}"] = lambda: f"{1e3 * late_training(system)['step_seconds']:.1f} ms"


for _system in ("dense", "eager_majority", "quorum:5", "eager_solo"):
    of_training(_system)


@value
def late_fresh_solo():
    return f"{late_training('eager_solo')['fresh_mean']:.2f}"


def eager_sgd(**chosen):
    """The rows of simulated trainings by eager-SGD, by participation."""
    return {r["participation"]: r for r in raw.read_json("eager_sgd.json")
            if all(r[key] == x for key, x in chosen.items())}


def faster(found, participation):
    return found[participation]["steps_per_second"] / found["everyone"]["steps_per_second"]


def percents_right(row):
    """The accuracy of a training, with that of each seed if there are several."""
    mean = f"{100 * row['accuracy_mean']:.1f} %"
    return mean if row["seeds"] == 1 else (
        f"{mean} ({100 * row['accuracy_min']:.1f} to {100 * row['accuracy_max']:.1f})")


UNEQUAL = {"ranks": 8, "imbalance": "none", "tau": 64}


@value
def late_sequences():
    plain, averaged = eager_sgd(**UNEQUAL, average=0), eager_sgd(**UNEQUAL, average=1)
    bounded = eager_sgd(ranks=8, imbalance="none", tau=4)["solo"]
    names = ["everyone", "solo", "majority", "quorum:4"]
    lines = []
    for text, found in (("", plain), ("averaged after each epoch: ", averaged)):
        lines += [[text + "steps per second / those of `everyone`", *(f"{faster(found, p):.2f}" for p in names)],
                  [text + "accuracy", *(percents_right(found[p]) for p in names)],
                  [text + "oldest gradient, in steps", *(f"{found[p]['stale_max']}" for p in names)]]
    speed = bounded["steps_per_second"] / plain["everyone"]["steps_per_second"]
    lines += [["tau = 4: the same three", "", f"{speed:.2f}, {percents_right(bounded)}, {bounded['stale_max']}", "",
               ""],
              ["paper, LSTM on UCF101: times as fast", "1", "1.64", "1.27", ""],
              ["paper: accuracy", "69.6 %", "60.6 %", "69.7 %", ""]]
    return table(["", *(f"`{p}`" for p in names)], lines)


def of_sequences(name, of):
    VALUES[f"late_sequences_{name}"] = lambda: of(eager_sgd(**UNEQUAL, average=0))


for _participation in ("solo", "majority"):
    of_sequences(_participation, lambda found, p=_participation: f"{faster(found, p):.2f}")
    of_sequences(f"{_participation}_accuracy",
                 lambda found, p=_participation: f"{100 * found[p]['accuracy_mean']:.1f} %")
of_sequences("everyone_accuracy", lambda found: f"{100 * found['everyone']['accuracy_mean']:.1f} %")


@value
def late_sequences_frames():
    row = eager_sgd(**UNEQUAL, average=0)["everyone"]
    return (f"{row['frames_min']:,.0f} to {row['frames_max']:,.0f} frames, with a mean of {row['frames_mean']:,.0f} "
            f"and a deviation of {row['frames_deviation']:,.0f}")


@value
def late_several():
    lines = []
    for ranks, late, delay, paper in ((64, 4, 0.3, "1.25"), (64, 4, 0.46, "1.23"), (8, 2, 0.3, ""), (4, 1, 0.3, "")):
        found = eager_sgd(ranks=ranks, imbalance=f"random:{late}", delay=delay)
        limit = (0.84 + delay) / (0.84 + delay * late / ranks)
        lines.append([f"{late} of {ranks}, by {1e3 * delay:.0f} ms", f"{limit:.2f}"])
        lines[-1] += [f"{faster(found, p):.2f}" for p in ("solo", "majority")] + [paper]
        lines[-1] += [percents_right(found[p]) for p in ("everyone", "solo", "majority")]
    found = eager_sgd(ranks=64, imbalance="cloud")
    lines.append(["64, as in a cloud", "", *(f"{faster(found, p):.2f}" for p in ("solo", "majority")), "",
                  *(percents_right(found[p]) for p in ("everyone", "solo", "majority"))])
    return table(["late ranks", "limit", "`solo`", "`majority`", "paper, `solo`", "accuracy of `everyone`", "of `solo`",
                  "of `majority`"], lines)


@value
def late_participations():
    """Steps per second of hyperplane, relative to waiting for everyone."""
    delays = (0.02, 0.03, 0.04)
    return table(["", *(f"delay of {1e3 * d:.0f} ms" for d in delays)],
                 [*([f"`{p}`", *(f"{hyperplane(p, d, 'hyperplane.txt')['ratio']:.2f}" for d in delays)]
                    for p in ("solo", "quorum:4", "majority")),
                  ["limit", *(f"{(0.032 + d) / (0.032 + d / 8):.2f}" for d in delays)],
                  ["paper, `solo`, delays of 200, 300 and 400 ms", "1.50", "1.75", "2.01"]])


# Codecs

CODECS = ["zfp:16", "zfp:8", "qsgd:8", "qsgd:4", "bf16", "zfp:8+p2p"]


def size_of(count):
    return int(count.rstrip("KM")) * {"K": 2**10, "M": MI}[count[-1]]


def compressed(hosts, link, n):
    """{codec: (time saved by the compressed ring against the ring, and against MPI_Allreduce)} over Open MPI: in the
    run with MPI_Allreduce that has the most iterations, or the last of these; if no run has it, by its last time."""
    runs, last_mpi = {}, None
    for name in ("netperf_compressed.txt", "netperf_compressed_more.txt", "netperf_compressed_64mib.txt",
                 "netperf_qsgd.txt"):
        for r in rows(name):
            words = r["heading"].split()
            if words[:4] == ["--hosts", ",".join(["1"] * hosts), "--link", link] and r["n"] == n:
                run = runs.setdefault((name, r["heading"]), {"iterations": r["iterations"]})
                run.setdefault(r["system"], r["seconds"])
                last_mpi = r["seconds"] if r["system"] == "mpi" else last_mpi
    found = {}
    for codec in CODECS:
        having = [run for run in runs.values() if f"ring+{codec}" in run and "ring" in run]
        if not having:
            continue
        best = max(reversed(having), key=lambda run: ("mpi" in run, run["iterations"]))
        seconds = best[f"ring+{codec}"]
        found[codec] = (1 - seconds / best["ring"], 1 - seconds / best.get("mpi", last_mpi))
    return found


@value
def codecs():
    lines = []
    for hosts in (4, 8):
        for link in ("20mbit", "50mbit", "200mbit", "1gbit"):
            for count in ("128K", "1M", "16M"):
                found = compressed(hosts, link, size_of(count))
                rate = link.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")
                cells = []
                for codec in CODECS:
                    ring, mpi = found[codec]
                    cells.append(f"{100 * ring:.0f} ({100 * mpi:.0f})")
                lines.append([f"{hosts}, {rate}", count, *cells])
    names = [f"`{codec}`" for codec in CODECS]
    return table(["hosts, link", "n", *names], lines)


OF_TWO_SHOT = ["ring+zfp:16", "ring+zfp:8", "two_shot+zfp:8", "ring+qsgd:8", "two_shot+qsgd:8", "ring+bound:1e-2"]


def two_shot(link, n):
    """{system: time saved against the ring} of netperf_codecs.txt."""
    own = [r for r in rows("netperf_codecs.txt") if f"--link {link} " in r["heading"] and r["n"] == n]
    ring = only(own, system="ring")["seconds"]
    return {r["system"]: f"{100 * (1 - r['seconds'] / ring):.0f}" for r in own}


@value
def codecs_two_shot():
    lines = []
    for link, rate, count in (("1gbit", "1 Gbit/s", "1M"), ("1gbit", "1 Gbit/s", "4M"), ("1gbit", "1 Gbit/s", "16M"),
                              ("200mbit", "200 Mbit/s", "4M")):
        saved = two_shot(link, size_of(count))
        lines.append([rate, count, *(saved.get(system, "") for system in OF_TWO_SHOT)])
    return table(["link", "n", *(f"`{system}`" for system in OF_TWO_SHOT)], lines)


@value
def codecs_saved_zfp():
    return f"{two_shot('1gbit', MI)['ring+zfp:8']} %"


@value
def codecs_saved_qsgd():
    return f"{100 * compressed(4, '200mbit', MI)['qsgd:8'][0]:.0f} %"


SCHEDULES = ["ring", "rec_doubling", "two_shot"]


def with_codec(codec, ranks):
    """{schedule: (row of codecs_training.json, row of codecs_error.json)}; the first is None if there was no training.
    `dense` stands for all schedules without a codec, and bound by the ring for bound by all, whose bits are equal."""
    found = {}
    for schedule in SCHEDULES:
        trained_as = {"none": "dense", "bound:1e-2": "ring+bound:1e-2"}.get(codec, f"{schedule}+{codec}")
        plain = schedule if schedule != "two_shot" else "two_shot+none"
        called = {"none": plain, "mx:e2m1": schedule + "_mx"}.get(codec, f"{schedule}+{codec}")
        trained = [r for r in raw.read_json("codecs_training.json") if (r["system"], r["ranks"]) == (trained_as, ranks)]
        found[schedule] = (trained[0] if trained else None,
                           only(raw.read_json("codecs_error.json"), system=called, ranks=ranks))
    return found


def codecs_trained(ranks, codecs):
    lines = []
    for codec in codecs:
        cells = []
        for trained, called in with_codec(codec, ranks).values():
            mean, low, high = (f"{100 * trained[f'accuracy_{which}']:.2f}" for which in ("mean", "min", "max"))
            cells += [f"{mean} ({low} to {high})", f"{1e3 * called['seconds']:.2f}"]
        lines.append([f"`{codec}`", *cells])
    return table(["codec", *(head for schedule in SCHEDULES for head in (f"`{schedule}`: %", "ms"))], lines)


@value
def codecs_training():
    return codecs_trained(8, ["none", "qsgd:4", "mx:e2m1", "bound:1e-2", "zfp:16", "zfp:12", "zfp:10", "zfp:8", "zfp:6",
                              "zfp:4"])


@value
def codecs_training_16():
    return codecs_trained(16, ["none", "qsgd:4", "zfp:8"])


@value
def codecs_training_4_bits():
    return " and ".join(percent(with_codec("qsgd:4", 8)[by][0]["accuracy_mean"]) for by in ("two_shot", "ring"))


@value
def codecs_training_none():
    return percent(with_codec("none", 8)["ring"][0]["accuracy_mean"])


@value
def codecs_training_faster():
    return f"{with_codec('none', 8)['ring'][1]['seconds'] / with_codec('qsgd:4', 8)['two_shot'][1]['seconds']:.1f}"


@value
def codecs_training_signs():
    """As above for zfp:6, with the sign of the gradients changed in every other step."""
    return ", ".join(percent(only(raw.read_json("codecs_signs.json"), system=f"{schedule}+zfp:6")["accuracy_mean"])
                     for schedule in SCHEDULES)


@value
def codecs_error():
    lines = []
    for ranks in (4, 8, 16):
        for codec in ("qsgd:8", "qsgd:4", "mx:e2m1", "bound:1e-2", "zfp:10", "zfp:8", "zfp:6"):
            cells = [f"{called['max_error']:.2f}, {called['rms_error']:.3f}, {called['mean_error']:.3f}"
                     for _, called in with_codec(codec, ranks).values()]
            lines.append([str(ranks), f"`{codec}`", *cells])
    return table(["P", "codec", *(f"`{schedule}`" for schedule in SCHEDULES)], lines)


def emulated():
    """The rows of netperf_coded.json."""
    return raw.read_json("netperf_coded.json")


def times_as_fast(system, topology):
    """How many times as fast a system is as the same one without coding: median, and the ends of the interval."""
    against = only(emulated(), system=system, topology=topology)["against_reference"]
    return [1 / against[key] for key in ("ratio", "highest", "lowest")]


@value
def codecs_entries():
    lines = []
    for r in emulated():
        hosts, link = r["topology"].rsplit("-", 1)
        rate = link.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")
        selection = f"{1e3 * r['select_seconds']:.0f} ms" if r["select_seconds"] else ""
        faster = ""
        if r["system"] != r["compared_to"]:
            ratio, low, high = times_as_fast(r["system"], r["topology"])
            faster = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
        lines.append([f"{len(hosts.split(','))}, {rate}", f"`{r['system']}`", f"{4e-6 * r['words_sent_mean']:.2f} MB",
                      f"{1e3 * r['seconds']:.0f} ms", selection, faster])
    return table(["hosts, link", "", "bytes sent", "time", "of this, selection", "times as fast"], lines)


@value
def codecs_entries_coded():
    return f"{100 / times_as_fast('ok_topk+coded', '1,1,1,1-100mbit')[0]:.0f} %"


@value
def codecs_entries_pruned():
    return f"{100 / times_as_fast('ok_topk+pruned', '1,1,1,1-100mbit')[0]:.0f} %"


@value
def codecs_entries_doubling():
    return f"{100 / times_as_fast('rec_doubling+coded', '1,1,1,1-100mbit')[0]:.0f} %"


# Training


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


@value
def training_bytes():
    return f"{100 * trained('ok_topk')['bytes_per_step'] / trained('dense')['bytes_per_step']:.1f} %"


@value
def training_accuracy():
    return accuracies("ok_topk", "dense")


def missed(system, what):
    return f"{100 * trained(system)[what + '_deviation']:.1f} %"


@value
def training_missed_selected():
    return missed("ok_topk", "selected")


@value
def training_missed_summed():
    return missed("ok_topk", "summed")


@value
def training_missed_gaussiank():
    return missed("gaussiank", "selected")


@value
def training_spread():
    means = [r["accuracy_mean"] for r in raw.read_json("training.json")]
    return f"{100 * (max(means) - min(means)):.2f}"


SEVEN_BITS = "ok_topk+coded:bf16"


@value
def training_coded_accuracy():
    return accuracies(SEVEN_BITS, "ok_topk")


@value
def training_coded_bytes():
    return f"{100 * trained(SEVEN_BITS)['bytes_per_step'] / trained('ok_topk')['bytes_per_step']:.0f} %"


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


@value
def training_plain_seeds():
    return over_seeds("ok_topk")


@value
def training_coded_seeds():
    return over_seeds(SEVEN_BITS)


# SparCML's experiments

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


VALUES |= {"linear_url": lambda: least_to_most("url_hosts4"),
           "linear_eight_hosts": lambda: least_to_most("url_hosts8x1"),
           "linear_webspam": lambda: least_to_most("webspam_hosts4")}


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
def linear_scd_ratio():
    return f"{times_less('scd_hosts4', 'allgather')[0]:.0f}"


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


# Preloaded library


@value
def preload():
    found = raw.read_json("preload_training.json")
    lines = [[f"`{r['system']}`", percent(r["history"][-1]["accuracy"])] for r in found]
    return table([name for name, _ in lines], [[accuracy for _, accuracy in lines]])


def preloaded(library, hosts, size, after="over hosts, with --min-bytes 65536, which was the default then"):
    """The last such measurement in the file."""
    return select(raw.preload(), library=library, hosts=hosts, bytes=size, after=after)[-1]


@value
def preload_large():
    return number(preloaded("openmpi", None, 64 * MI, after="")["ratio"])


@value
def preload_hosts():
    return number(preloaded("openmpi", "1,1,1,1", MI)["ratio"])


@value
def preload_slower():
    return number(preloaded("openmpi", "1,1,1,1,1,1,1,1", 2**16)["ratio"])


def coded_epochs(link, setting):
    return epochs_of(over_hosts("codecs", link=link, system=setting))


def saved_by_codec(link, setting, reference="own"):
    return saved_of(coded_epochs(link, setting), coded_epochs(link, reference))


@value
def preload_training():
    lines = []
    for row in over_hosts("codecs", link="1gbit"):
        name = row["system"]
        cells = [cell for link in ("100mbit", "1gbit")
                 for cell in (with_range(coded_epochs(link, name)), f"{100 * saved_by_codec(link, name):.0f} %")]
        lines.append([f"`{name}`", *cells, percent(row["history"][-1]["accuracy"])])
    return table(["setting", "100 Mbit/s: s an epoch", "saved", "1 Gbit/s: s an epoch", "saved",
                  f"right after {len(over_hosts('codecs', link='1gbit')[0]['history'])} epochs"], lines)


def saved_over(link, reference):
    """By the settings with a codec."""
    return percents_between([saved_by_codec(link, row["system"], reference) for row in over_hosts("codecs", link=link)
                             if "+" in row["system"]])


VALUES |= {"preload_training_saved": lambda: saved_over("100mbit", "own"),
           "preload_training_saved_fast": lambda: saved_over("1gbit", "own"),
           "preload_training_saved_ring": lambda: saved_over("100mbit", "ring"),
           "preload_training_saved_ring_fast": lambda: saved_over("1gbit", "ring")}


@value
def preload_training_ring():
    return " and ".join(f"{100 * saved_by_codec(link, 'ring'):.0f} %" for link in ("100mbit", "1gbit"))


# A GPU


def on_h100(kernel):
    return next(ratio for name, _, _, ratio, *_ in raw.gpu_kernels() if name == kernel)


@value
def gpu_kernels():
    lines = [[name.replace("copy", "**copy**") if name == "copy" else f"`{name}`" if " " not in name else name,
              time, rate, f"{ratio} ({low} to {high})", target]
             for name, time, rate, ratio, low, high, target in raw.gpu_kernels()]
    return table(["kernel", "ms", "GB/s", "of the copy", "target"], lines)


@value
def gpu_libraries():
    lines = [[name, time, kernel, f"{ratio} ({low} to {high})", target]
             for name, time, ratio, low, high, target, kernel in raw.gpu_libraries()]
    return table(["Thrust or CUB", "ms", "spar's kernel", "time / that of the kernel", "target, at least"], lines)


@value
def gpu_count():
    middle, least, most = raw.gpu_count()
    return f"{middle} ({least} to {most})"


@value
def gpu_step():
    head = ["", "ms a step", "ms of kernels, all ranks", "kernels / least bytes", "launches", "copies", "host waits"]
    return table(head, [[name, *numbers] for name, numbers in raw.gpu_steps().items()])


@value
def gpu_step_ratio():
    steps = raw.gpu_steps()
    return number(float(steps["Ok-Topk"][0]) / float(steps["ring"][0]))


@value
def gpu_systems():
    lines = []
    for device, host in (("1 --memory device", "1 --in-place"),
                         ("0.01 --memory device", "0.01 --input dense --in-place")):
        on_host = raw.gpu_systems(f"spar_perf --density {host}")
        for system, (memory, time, low, high) in raw.gpu_systems(f"spar_perf --density {device}").items():
            lines.append([f"`{system}`", memory, f"{time} ({low} to {high})", on_host[system][1]])
    return table(["system", "works on", "values in device memory", "values on the host"], lines)


@value
def gpu_select():
    return on_h100("take_at_least, 1 %")


@value
def gpu_topk_faster():
    return f"{float(next(ratio for name, _, ratio, *_ in raw.gpu_libraries() if name == 'DeviceTopK')):.1f}"


def ms_on_h100(kernel):
    return next(float(ms) for name, ms, *_ in raw.gpu_kernels() if name == kernel)


@value
def gpu_topk_to_take():
    return number(ms_on_h100("exact top-k, 1 %") / ms_on_h100("take_at_least, 1 %"))


def floats_on_h100(kernel):
    """TB of floats a second, in vectors of 2^28 values."""
    return number(4 * 2**28 / ms_on_h100(kernel) / 1e9)


@value
def gpu_zfp_encode():
    return floats_on_h100("zfp, 8 bits: encode")


@value
def gpu_zfp_decode():
    return floats_on_h100("zfp, 8 bits: decode")


@value
def gpu_select_faster():
    faster = next(ratio for name, _, ratio, *_ in raw.gpu_libraries() if name == "DeviceSelect")
    return number(1 / float(faster))


# Compiling

COMPILED = {
    "mpi": "`MPI_Allreduce`",
    "boost_mpi": "Boost.MPI's `all_reduce`",
    "regex": "a program with `std::regex`",
    "dense, spar.hpp": "dense allreduce, `spar.hpp`",
    "dense, part of spar.hpp": "the same, `allreduce.hpp`",
    "dense, compiled library": "the same with `SPAR_COMPILED`",
    "dense, any.hpp": "the same, `any.hpp`",
    "sparse, spar.hpp": "sparse allreduce, `spar.hpp`",
    "sparse, part of spar.hpp": "the same, `allreduce.hpp`",
    "sparse, compiled library": "the same with `SPAR_COMPILED`",
    "sparse, any.hpp": "the same, `any.hpp`",
    "ok_topk, spar.hpp": "Ok-Topk, `spar.hpp`",
    "ok_topk, part of spar.hpp": "the same, `topk.hpp`",
    "ok_topk, compiled library": "the same with `SPAR_COMPILED`",
    "ok_topk, any.hpp": "the same, `any.hpp`",
}


def compiled():
    """{row of the table: what was measured}, for the rows that were measured."""
    programs = raw.read_json("compile.json")["programs"]
    return {name: programs[name] for name in COMPILED if name in programs}


def relative_seconds(name):
    """The time to compile a program, relative to that of the dense allreduce with spar.hpp."""
    return f"{compiled()[name]['seconds'] / compiled()['dense, spar.hpp']['seconds']:.2f}"


@value
def compile_table():
    return table(["program", "seconds", "from .. to", "of the dense one", "kB of code"],
                 [[COMPILED[name], f"{r['seconds']:.2f}", "{:.2f} .. {:.2f}".format(*r["range"]),
                   relative_seconds(name), f"{r['code'] / 1000:.1f}"] for name, r in compiled().items()])


@value
def compile_rounds():
    return str(raw.read_json("compile.json")["rounds"])


@value
def compile_dense_with_library():
    return relative_seconds("dense, compiled library")


@value
def compile_dense_any():
    return relative_seconds("dense, any.hpp")


def of_compiler(key, name):
    """Adds the instructions of the compiler, in thousand million, to VALUES."""
    VALUES[f"compile_instructions_{key}"] = lambda: f"{compiled()[name]['instructions'] / 1e9:.2f}"


for _key, _name in (("dense", "dense, spar.hpp"), ("dense_compiled", "dense, compiled library"),
                    ("sparse", "sparse, spar.hpp"), ("sparse_compiled", "sparse, compiled library")):
    of_compiler(_key, _name)


@value
def codecs_threads():
    found = rows("codecs_threads.txt")
    ratio = lambda system: between([r["ratio"] for r in select(found, system=system)])
    return ", ".join(f"`{s}` {ratio(s)}" for s in ("ring+qsgd:8", "ring+bound:1e-3", "ring+zfp:8"))


# Ok-Topk without one of its ideas

ABLATED_K = 10486
ABLATED = {"balanced regions": "equal regions", "moves": "no moves", "rotation": "same order"}


def ablated(network, **wanted):
    return only(raw.read_json("ok_topk_ablations.json"), network=f"network_{network}", **wanted)


def ranks_ablated():
    return sorted({r["ranks"] for r in raw.read_json("ok_topk_ablations.json") if "split" in r})


def by_ranks(text):
    return ", ".join(text(ranks) for ranks in ranks_ablated())


def amortised(r, phase):
    """Seconds in the mean of 64 calls, of which the first searches for boundaries."""
    return (r[phase]["first"] + 63 * r[phase]["mean"]) / 64


def without_idea(phase, pattern, variant, whole="all ideas"):
    """How many times as long a phase takes without an idea, by the numbers of ranks, for each network."""
    def ratio(network, ranks):
        of = lambda variant: amortised(ablated(network, ranks=ranks, pattern=pattern, variant=variant), phase)
        return of(variant) / of(whole)

    return [by_ranks(lambda ranks: f"{ratio(network, ranks):.2f}") for network in NETWORKS]


def call_in_same_order(pattern):
    """The same for a call whose messages to the owners are not rotated: the exchange takes longer."""
    def ratio(network, ranks):
        of = lambda variant: amortised(ablated(network, ranks=ranks, pattern=pattern, variant=variant), "seconds")
        return 1 + (of("same order, at once") - of("rotated, at once")) / of("all ideas")

    return [by_ranks(lambda ranks: f"{ratio(network, ranks):.2f}") for network in NETWORKS]


@value
def ok_topk_ideas():
    lines = []
    for idea, phase, place, paper in (("balanced regions", "split", "clusters", "1.13 to 1.75 (figure 7 a)"),
                                      ("moves", "gather", "embedding", "1.12 to 1.43 (figure 7 b)")):
        name = {"split": "split and reduce", "gather": "moves and allgather"}[phase]
        lines.append([idea, f"{name}, {place}", paper, *without_idea(phase, place, ABLATED[idea])])
        for pattern in ("drift", "clusters", "embedding"):
            lines.append([idea, f"whole call, {pattern}", "", *without_idea("seconds", pattern, ABLATED[idea])])
    for how in ("at once", "one by one"):
        lines.append(["rotation", f"exchange with the owners, messages {how}", "",
                      *without_idea("seconds", "drift", f"same order, {how}", f"rotated, {how}")])
    lines.append(["rotation", "whole call, drift", "", *call_in_same_order("drift")])
    return table(["without", "phase, values", "paper", *NETWORKS.values()], lines)


def calls_in_milliseconds(network, pattern):
    of = lambda ranks: ablated(network, ranks=ranks, pattern=pattern, variant="all ideas")
    return by_ranks(lambda ranks: three_digits(1e3 * amortised(of(ranks), "seconds")))


@value
def ok_topk_ideas_calls():
    return " and ".join(f"{calls_in_milliseconds(network, 'drift')} ms ({name})" for network, name in NETWORKS.items())


def mean_by_ranks(key, pattern, variant="all ideas", form="{:.1f}"):
    of = lambda ranks: ablated("aries", ranks=ranks, pattern=pattern, variant=variant)
    return by_ranks(lambda ranks: form.format(of(ranks)[key]["mean"]))


@value
def ok_topk_ideas_drift_share():
    return mean_by_ranks("largest_share", "drift")


@value
def ok_topk_ideas_clusters_share():
    return mean_by_ranks("largest_share", "clusters")


@value
def ok_topk_ideas_embedding_share():
    return mean_by_ranks("largest_share", "embedding")


@value
def ok_topk_ideas_equal_share():
    return mean_by_ranks("largest_share", "clusters", "equal regions")


@value
def ok_topk_ideas_counted():
    return mean_by_ranks("counted_first", "drift", form="{:.0%}").replace("%", " %")


REUSED = {
    "exact": "exact in each call, exactly k",
    "period 1": "exact in each call, the result within 10 % of k",
    "period 32": "reused for 32 calls (the default)",
    "period 128": "reused for 128 calls",
    "period 32, k to 99 %": "reused for 32 calls, within 99 % of k",
}


def from_k(r, key, least, most):
    """The mean, the minimum and the maximum of a number of entries, relative to k."""
    mean, low, high = (100 * (x / ABLATED_K - 1) for x in (r[key]["mean"], r[least]["min"], r[most]["max"]))
    return "always k" if low == high else f"{mean:+.1f} % ({low:+.0f} to {high:+.0f} %)".replace("-0.0", "0.0")


@value
def ok_topk_reuse():
    lines = []
    for variant, name in REUSED.items():
        on = {network: ablated(network, pattern="drift", variant=variant) for network in NETWORKS}
        r = on["aries"]
        lines.append([name, f"{100 * r['exact']['mean']:.1f} %",
                      from_k(r, "selected", "least_selected", "most_selected"), from_k(r, "summed", "summed", "summed"),
                      f"{r['words']['mean'] / ABLATED_K:.2f}",
                      *(three_digits(1e3 * of["seconds"]["mean"]) for of in on.values())])
    return table(["thresholds", "exact selections", "selected", "result", "words / k",
                  *(f"ms, {name}" for name in NETWORKS.values())], lines)


def selection_milliseconds(name):
    line = rf"^{name}<float>/one_of:100/manual_time +([\d.]+) ms"
    return float(re.search(line, raw.text("kernel_select.txt"), re.M)[1])


@value
def ok_topk_reuse_cost():
    return f"{selection_milliseconds('exact_topk') / selection_milliseconds('threshold_reuse'):.1f}"


@value
def ok_topk_reuse_saved():
    return f"{(selection_milliseconds('exact_topk') - selection_milliseconds('threshold_reuse')) / 16:.2f}"


# The papers


@value
def papers():
    lines = [[f"{r['paper']}, {r['place']}: {r['claim']}", r["found"], r["verdict"],
              f"`{name}`" + (", `--short`" if r["short"] else "")]
             for name, r in raw.read_json("papers.json").items()]
    return table(["the paper", "here", "", "row"], lines)


@value
def papers_verdicts():
    found = [r["verdict"] for r in raw.read_json("papers.json").values()]
    verdicts = ("same", "less", "not seen", *(["not measured"] if "not measured" in found else []))
    return ", ".join(f"{found.count(verdict)} {verdict}" for verdict in verdicts)


@value
def papers_seconds():
    """How long the recorded rows took, with --short and without."""
    took = [r["took"] for r in raw.read_json("papers.json").values() if "took" in r]
    said = []
    for key, how in (("full", "in full"), ("short", "with `--short`")):
        if seconds := [t[key] for t in took if key in t]:
            said.append(f"{max(1, round(sum(seconds) / 60))} minutes {how} ({len(seconds)} rows)")
    return ", ".join(said)


@value
def papers_lacking():
    """The rows of the script that have no record, as lines."""
    script = (raw.FOLDER.parents[1] / "scripts" / "papers").read_text(encoding="utf-8")
    names = re.findall(r"^@row\(.*?^def (\w+)\(m\):", script, re.M | re.S)
    lacking = ", ".join(f"`{name}`" for name in names if name not in raw.read_json("papers.json")) or "None."
    return "\n\n" + textwrap.fill(lacking, 120) + "\n\n"
