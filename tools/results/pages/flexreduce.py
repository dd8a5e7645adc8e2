# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/flexreduce.md."""

import statistics

import raw
from raw import only, rows
from values import MI, VALUES, between, number, percents_between, table, value, with_range

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
def flexreduce_uneven():
    both = [on_tree("2,3", s)["seconds"] for s in ("flexreduce", "blueconnect")]
    return " s, `blueconnect` ".join(f"{s:.2f}" for s in both) + " s"


def simulated_tree(density, system):
    return only(raw.read_json("flexreduce.json"), density=density, system=system)


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
def flexreduce_ok_topk_few():
    found = only(raw.read_json("tree_ok_topk.json"), system="tree_ok_topk", n=MI // 4)["against_reference"]
    return f"{found['ratio']:.2f} (interval {found['lowest']:.2f} to {found['highest']:.2f})"


def over_hosts(part, **wanted):
    """Rows of a part of bench/training_hosts.py; none if it has no such run."""
    found = raw.read_json("training_hosts.json")[part]["rows"]
    return [row for row in found if all(row.get(key) == its for key, its in wanted.items())]


def how_run(*parts):
    short = any(raw.read_json("training_hosts.json")[part]["short"] for part in parts)
    return "a short run while other programs used the machine" if short else "nothing else running"


def epochs_of(found):
    """Seconds of each epoch of these rows."""
    ends = [[0, *(h["seconds"] for h in row["history"])] for row in found]
    return [end - begin for each in ends for begin, end in zip(each, each[1:])]


def saved_of(found, reference):
    """The share of the median reference that the median saves."""
    return 1 - statistics.median(found) / statistics.median(reference)


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


VALUES |= {
    "flexreduce_saved":
        lambda: f"{100 * (1 - on_tree('2,3', 'flexreduce')['seconds'] / on_tree('2,3', 'ring')['seconds']):.0f} %",
    "flexreduce_streams":
        lambda: " MB and ".join(f"{simulated_tree(0.01, s)['root_link_bytes'] * 1e-6:.1f}"
                                for s in ("ssar_split", "tree_sparcml")) + " MB",
    "flexreduce_ok_topk_first":
        lambda: tree_to_flat(simulated_tree(d, "tree_ok_topk")["seconds"] / simulated_tree(d, "ok_topk")["seconds"]
                             for d in (0.001, 0.003, 0.01, 0.03)),
    "flexreduce_ok_topk_emulated":
        lambda: number(raw.on_emulated_tree()["tree_ok_topk"] / raw.on_emulated_tree()["ok_topk"]),
    "flexreduce_sizes_run": lambda: how_run("sizes"),
    "flexreduce_training_run": lambda: how_run("images", "preloaded"),
    "flexreduce_epochs": lambda: percents_between([*saved_of_epochs("`images`"), *saved_of_epochs("`plain_mpi`")]),
    "flexreduce_epochs_computing": lambda: percents_between(saved_of_epochs("`images`, computation of 100 ms")),
    "flexreduce_sizes_saved":
        lambda: percents_between([1 - of_size(hosts, n, "flexreduce") / of_size(hosts, n, "ring")
                                  for hosts in size_hosts() for n in all_sizes()]),
    "flexreduce_levels_racks": lambda: ", ".join(to_the_ring(tree) for tree in trees() if tree.startswith("racks")),
    "flexreduce_levels_sockets": lambda: to_the_ring("sockets, 1 Gbit/s"),
    "flexreduce_levels_hierarchical":
        lambda: between([tree_seconds(tree, "hierarchical")["seconds"] / tree_seconds(tree, "flexreduce")["seconds"]
                         for tree in trees()]),
}
