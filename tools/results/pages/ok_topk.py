# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/ok_topk.md."""

import re
import statistics

import raw
from raw import only, select
from values import MI, VALUES, between_plain, median_and_range, number, percent, seconds_to, table, three_digits, value

# Weak scaling

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
def ok_topk_slower():
    found = slower_than_ok_topk("aries", ranks_scaled()[-1])
    return f"{times(found[0][1])} to {times(found[-1][1])}"


@value
def ok_topk_calls():
    calls = {}
    for ranks, r in scaled("aries", "ok_topk").items():
        calls.setdefault(r["iterations"], []).append(str(ranks))
    return ", ".join(f"{count} calls on {' and '.join(ranks)}" for count, ranks in calls.items()) + " ranks"


@value
def ok_topk_calls_fewer():
    *_, (ranks, r) = scaled("aries", "topka").items()
    return f"{r['iterations']} of `topka` and `gaussiank` on {ranks}"


def network_of(network):
    """A row that has the numbers of the network."""
    return scaled(network, "ok_topk")[32]


@value
def ok_topk_local_work():
    r = network_of("aries")
    return f"{1e9 * r['gamma_sparse']:.1f} ns for each merged entry, and {1e9 * r['gamma_dense']:.1f} ns for each value"


@value
def ok_topk_aries_links():
    r = network_of("aries")
    return f"{1e6 * r['alpha']:.1f} us, {1e-9 / r['beta']:.0f} GB/s"


@value
def ok_topk_step_fastest():
    """The fastest of the other systems on most ranks, and how many times as long its steps take."""
    system, ratio = slower_than_ok_topk("aries", ranks_scaled()[-1], computation_of("aries"))[0]
    return f"`{system}` takes {times(ratio)}"


@value
def ok_topk_computation_share():
    shares = [number(computation_of(network) / scaled(network, "dense")[32]["times"][0]) for network in NETWORKS]
    return " and ".join(dict.fromkeys(shares))


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
    for system, stated in (("dense_overlap", "3.19"), ("gaussiank", "1.30")):
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
    return f"{r['parameters'] * r['density']:,.0f}, {100 * r['density']:g} %"


@value
def ok_topk_selected_run():
    r = selected_counts()["ok_topk"]
    return f"{r['ranks']} ranks train a classifier of Fashion-MNIST for {r['epochs']} epochs"


VALUES |= {
    "ok_topk_aries": lambda: scaled_table("aries"),
    "ok_topk_1gbit": lambda: scaled_table("1gbit"),
    "ok_topk_most_ranks": lambda: str(ranks_scaled()[-1]),
    "ok_topk_computation": lambda: " and ".join(f"{1e3 * computation_of(network):.2g} ms" for network in NETWORKS),
    "ok_topk_1gbit_latency": lambda: f"{1e6 * network_of('1gbit')['alpha']:.0f} us",
    "ok_topk_buckets": lambda: str(scaled("aries", "dense_overlap")[32]["buckets"]),
    "ok_topk_large_calls": lambda: str(scaled("aries", "ok_topk", 16 * MI)[32]["iterations"]),
    "ok_topk_selected_off": lambda: f"{100 * selected_counts()['ok_topk']['selected_deviation']:.1f} %",
}


# Time to an accuracy

HOSTS_OF_TRAINING = [(hosts, link) for hosts in (4, 8) for link in ("1gbit", "100mbit")]
TRAINED_OVER_HOSTS = ["dense", "dense+overlap", "topka", "topka+overlap", "topkdsa", "gtopk", "gaussiank", "ok_topk",
                      "ok_topk+overlap"]


def trained_over(system, hosts, link):
    return only(raw.read_json("time_to_accuracy.json"), system=system, ranks=hosts, link=link)


def network_name(hosts, link):
    return f"{hosts} hosts, {link.replace('gbit', ' Gbit/s').replace('mbit', ' Mbit/s')}"


def times_to(accuracy):
    lines = []
    for system in TRAINED_OVER_HOSTS:
        found = [trained_over(system, *network) for network in HOSTS_OF_TRAINING]
        cells = [median_and_range(seconds_to(accuracy, r["history"]), r["seeds"]) for r in found]
        lines.append([f"`{system}`", *cells])
    return table([f"s to {100 * accuracy:.0f} %", *(network_name(*network) for network in HOSTS_OF_TRAINING)], lines)


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


def median_seconds(system, accuracy, hosts, link):
    return statistics.median(seconds_to(accuracy, trained_over(system, hosts, link)["history"]))


def sooner_than_dense(system, accuracy, hosts, link):
    """How many times as long the dense sum takes to reach the accuracy, medians over the seeds."""
    return median_seconds("dense", accuracy, hosts, link) / median_seconds(system, accuracy, hosts, link)


@value
def ok_topk_first_85():
    """The system that reaches 85 % first, on each network."""
    first = [min(TRAINED_OVER_HOSTS, key=lambda system: median_seconds(system, 0.85, *network))
             for network in HOSTS_OF_TRAINING]
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
def ok_topk_overlap_slow():
    found = {name: 1e3 * statistics.median(r["step_seconds"] for r in overlap_runs(name, "100mbit"))
             for name in ("ok_topk", "ok_topk+overlap", "topka", "topka+overlap")}
    return ", ".join(f"{found[name + '+overlap']:.0f} instead of {found[name]:.0f} ms with `{name}`"
                     for name in ("ok_topk", "topka"))


VALUES |= {
    "ok_topk_time_85": lambda: times_to(0.85),
    "ok_topk_time_88": lambda: times_to(0.88),
    "ok_topk_sooner_85":
        lambda: ", ".join(f"{sooner_than_dense('ok_topk', 0.85, *network):.2g}" for network in HOSTS_OF_TRAINING),
    "ok_topk_overlap_plain":
        lambda: f"{1e3 * statistics.median(r['step_seconds'] for r in overlap_runs('ok_topk')):.0f}",
    "ok_topk_overlap_bytes": lambda: f"{8e3 * overlap_runs('ok_topk')[0]['bytes_per_step'] / 1e9:.1f}",
}


# What each idea is worth

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


@value
def ok_topk_ideas_calls():
    def milliseconds(network):
        of = lambda ranks: ablated(network, ranks=ranks, pattern="drift", variant="all ideas")
        return by_ranks(lambda ranks: three_digits(1e3 * amortised(of(ranks), "seconds")))

    return " and ".join(f"{milliseconds(network)} ms ({name})" for network, name in NETWORKS.items())


def mean_by_ranks(key, pattern, variant="all ideas", form="{:.1f}"):
    of = lambda ranks: ablated("aries", ranks=ranks, pattern=pattern, variant=variant)
    return by_ranks(lambda ranks: form.format(of(ranks)[key]["mean"]))


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


VALUES |= {
    "ok_topk_ideas_drift_share": lambda: mean_by_ranks("largest_share", "drift"),
    "ok_topk_ideas_clusters_share": lambda: mean_by_ranks("largest_share", "clusters"),
    "ok_topk_ideas_embedding_share": lambda: mean_by_ranks("largest_share", "embedding"),
    "ok_topk_ideas_equal_share": lambda: mean_by_ranks("largest_share", "clusters", "equal regions"),
    "ok_topk_ideas_entries": lambda: f"{ranks_ablated()[-1]} ranks, a rank has {ABLATED_K / ranks_ablated()[-1]:.0f}",
    "ok_topk_reuse_calls":
        lambda: "{ranks} ranks, {calls} calls".format(**ablated("aries", pattern="drift", variant="period 32")),
    "ok_topk_ideas_ranks": lambda: ", ".join(map(str, ranks_ablated()[:-1])) + f" and {ranks_ablated()[-1]}",
    "ok_topk_ideas_counted": lambda: mean_by_ranks("counted_first", "drift", form="{:.0%}").replace("%", " %"),
    "ok_topk_reuse_cost":
        lambda: f"{selection_milliseconds('exact_topk') / selection_milliseconds('threshold_reuse'):.1f}",
    "ok_topk_reuse_saved":
        lambda: f"{(selection_milliseconds('exact_topk') - selection_milliseconds('threshold_reuse')) / 16:.2f}",
}
