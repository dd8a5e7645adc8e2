# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The plots of the pages. PLOTS maps the name of a plot to its title, which says what the plot shows, a function that
returns its data from the recorded results, and a function that draws these data, and nothing else, on a figure."""

import pages.codecs
import pages.flexreduce
import pages.late_ranks
import pages.ok_topk
import pages.speed
import pages.volume
import raw
from plotting import COLOURS
from raw import only, rows, select
from values import MI

PLOTS = {}
MARKERS = "osv^D*PX<"
GREY = "#555555"


def plot(title, of, size=(7, 3.6)):
    """Makes the decorated function draw the data that `of` returns."""

    def add(draw):
        PLOTS[draw.__name__] = {"title": title, "data": of, "draw": draw, "size": size}
        return draw

    return add


def look(number):
    return {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 4.5, "linewidth": 1.4}


def grid(axes):
    axes.grid(True, which="major", alpha=0.35, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def percents(axes, at):
    axes.set_xscale("log")
    axes.set_xticks(at, [f"{100 * x:g}" for x in at])
    axes.minorticks_off()
    axes.set_xlabel("density k / n (%)")


def counts(axes, at, label):
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [f"{x:,}" for x in at])
    axes.minorticks_off()
    axes.set_xlabel(label)


def name_lines(axes, ends, gap=10):
    """Writes the names of lines beside their right ends, `gap` points apart at least. ends: [(name, x, y, colour)]"""
    axes.figure.canvas.draw()  # the layout decides on positions
    scale = 72 / axes.figure.dpi
    places = sorted((axes.transData.transform((x, y))[1] * scale, name, x, y, colour) for name, x, y, colour in ends)
    heights = [p[0] for p in places]
    for _ in range(200):  # pushes neighbours apart until all have room
        for i in range(len(heights) - 1):
            overlap = gap - (heights[i + 1] - heights[i])
            if overlap > 0.01:
                heights[i] -= overlap / 2
                heights[i + 1] += overlap / 2
    for height, (before, name, x, y, colour) in zip(heights, places):
        axes.annotate(name, (x, y), xytext=(7, height - before), textcoords="offset points", color=dark(colour),
                      va="center", fontsize=8.5, annotation_clip=False)


def dark(colour):
    """The colour for text, which needs more contrast than a line."""
    return "#" + "".join(f"{int(colour[i:i + 2], 16) * 2 // 3:02x}" for i in (1, 3, 5))


def draw_lines(axes, lines, order=None):
    """lines: {name: [[x, y], ...]}; returns the ends for name_lines. `order` has the names of all panels, so that
    each name looks the same in all of them."""
    ends = []
    for name, points in lines.items():
        number = (order or list(lines)).index(name)
        axes.plot(*zip(*points), **look(number))
        ends.append((name, *points[-1], COLOURS[number]))
    return ends


# Speed


def by_density(found):
    names = {"sparcml": "sparcml", "allgather": "allgather", "dsar_qsgd8": "DSAR, 8 bits", "dense": "dense"}
    return {name: [[r["density"], r["ratio"]] for r in select(found, system=system)] for system, name in names.items()}


@plot("Time of four systems divided by the time of MPI_Allreduce, against the density, on one host and on four hosts",
      lambda: {"one host, 2 ranks": by_density(pages.speed.one_host()),
               "4 hosts, links of 1 Gbit/s": by_density(rows("choosing_4_hosts.txt"))})
def speed(figure, data):
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.1, right=0.86, bottom=0.15, top=0.91, wspace=0.08)
    for axes, (title, lines) in zip(panels, data.items()):
        axes.set_yscale("log")
        ends = draw_lines(axes, lines)
        percents(axes, [0.0001, 0.001, 0.01, 0.1])
        axes.axhline(1, color="black", linewidth=1)
        axes.set_title(title, fontsize=9.5)
        grid(axes)
    panels[0].set_ylabel("time / time of MPI_Allreduce")
    panels[0].set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    panels[0].text(0.0001, 0.72, "below the line: spar is faster", fontsize=8, va="top")
    name_lines(axes, ends)


def topk_times():
    names = ["ok_topk", "gtopk", "topkdsa", "topka", "gaussiank", "mpi"]
    found = rows("netperf_drift_8_hosts.txt")
    return {name: [[1e3 * r[key] for key in ("seconds", "low", "high")] for r in select(found, system=name)]
            for name in names}


@plot("Milliseconds of an allreduce by five Top-k systems and by MPI_Allreduce on eight hosts", topk_times, (7, 2.6))
def speed_topk(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.17, right=0.97, bottom=0.2, top=0.88)
    for number, library in enumerate(pages.speed.LIBRARIES.values()):
        at = [line + 0.17 * (2 * number - 1) for line in range(len(data))]
        axes.plot([times[number][0] for times in data.values()], at, MARKERS[number], color=COLOURS[number],
                  markersize=6, label=library)
        for y, times in zip(at, data.values()):
            axes.annotate(f"{times[number][0]:.0f}", (times[number][0], y), xytext=(6, 0), textcoords="offset points",
                          fontsize=8, va="center", color=dark(COLOURS[number]))
    axes.set_yticks(range(len(data)), ["MPI_Allreduce" if name == "mpi" else name for name in data])
    axes.invert_yaxis()
    axes.set_xlim(0, 1850)
    axes.set_xlabel("median time of a call (ms)")
    grid(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0)


# Volume


def volumes():
    systems = ["topka", "topkdsa", "gtopk", "ok_topk"]
    simulated = pages.volume.simulated
    return {s: [[r["ranks"], r["words_sent_mean"] / r["nnz_in"]] for r in simulated(s)] for s in systems} | {
        "bound": [[r["ranks"], r["words_bound"] / r["nnz_in"]] for r in simulated("ok_topk")]}


@plot("Words that a rank sends for each selected entry, against the number of ranks, beside the lower bound", volumes)
def volume(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.8, bottom=0.15, top=0.96)
    axes.set_yscale("log")
    ends = draw_lines(axes, {name: points for name, points in data.items() if name != "bound"})
    axes.plot(*zip(*data["bound"]), color="black", linewidth=1, linestyle="--")
    ends.append(("bound, if only k\nsums are needed", *data["bound"][-1], "#000000"))
    axes.axhline(6, color=GREY, linewidth=1, linestyle=":")
    axes.text(11, 6.4, "6 words: bound of Ok-Topk without a search", fontsize=8, color=GREY)
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    counts(axes, [p for p, _ in data["topka"]], "ranks P")
    axes.set_ylabel("words sent by a rank / k")
    grid(axes)
    name_lines(axes, ends, gap=15)


def exact_volumes():
    found = raw.read_json("volume_exact.json")
    lines = {}
    for r in found:
        lines.setdefault(r["system"], []).append([r["density"], r["words_sent_mean"] / r["n"]])
    return lines | {"bound": [[r["density"], r["words_bound"] / r["n"]] for r in found if r["system"] == "sparcml"]}


@plot("Words that a rank sends for each value of the vector, against the density, beside the bound", exact_volumes)
def volume_exact(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.8, bottom=0.15, top=0.96)
    axes.set_yscale("log")
    ends = draw_lines(axes, {name: points for name, points in data.items() if name != "bound"})
    axes.plot(*zip(*data["bound"]), color="black", linewidth=1, linestyle="--")
    ends.append(("bound", *data["bound"][-1], "#000000"))
    percents(axes, [0.0001, 0.001, 0.01, 0.1, 1])
    axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    axes.set_ylabel("words sent by a rank / n")
    grid(axes)
    name_lines(axes, ends)


# Scaling


def by_ranks(name):
    lines = {}
    for r in sorted(raw.read_json(name), key=lambda r: r["ranks"]):
        lines.setdefault(r["system"], []).append([r["ranks"], r["seconds"] * 1e3])
    return lines


@plot("Simulated milliseconds of an allreduce against the number of ranks, for dense sums and for sparse sums",
      lambda: {"n = 1,048,576, density 1 %": by_ranks("choosing_ranks.json"),
               "n = 65,536, 16 entries each": by_ranks("scaling.json")}, (7, 3.9))
def scaling(figure, data):
    panels = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.87, bottom=0.14, top=0.91, wspace=0.5)
    order = list(dict.fromkeys(system for lines in data.values() for system in lines))
    for axes, (title, lines) in zip(panels, data.items()):
        axes.set_yscale("log")
        ends = draw_lines(axes, lines, order)
        all_ranks = sorted({p for points in lines.values() for p, _ in points})
        counts(axes, all_ranks if len(all_ranks) < 6 else all_ranks[::2], "ranks P")
        axes.set_title(title, fontsize=9.5)
        axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        times = [y for points in lines.values() for _, y in points]
        axes.set_ylim(min(times) / 1.5, max(times) * 1.5)
        grid(axes)
        for name, x, y, colour in ends:
            if x < all_ranks[-1]:  # not measured on more ranks
                axes.annotate(name, (x, y), xytext=(-10, 7), textcoords="offset points", color=dark(colour),
                              fontsize=8.5, ha="right")
        name_lines(axes, [end for end in ends if end[1] == all_ranks[-1]])
    panels[0].set_ylabel("simulated time of a call (ms)")


def weak_scaling():
    of = pages.ok_topk
    return {title: {system: [[ranks, 1e3 * of.call_seconds(network, system, ranks)]
                             for ranks in of.scaled(network, system)] for system in of.SCALED}
            for network, title in of.NETWORKS.items()}


@plot("Simulated milliseconds of an allreduce against the number of ranks, by six systems and by the dense allreduce "
      "that overlaps with a computation, on two networks", weak_scaling, (7, 3.9))
def ok_topk(figure, data):
    panels = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.85, bottom=0.14, top=0.91, wspace=0.6)
    for axes, (title, lines) in zip(panels, data.items()):
        axes.set_yscale("log")
        ends = draw_lines(axes, lines)
        counts(axes, pages.ok_topk.ranks_scaled(), "ranks P")
        axes.set_title(f"{title}, n = 1,048,576, k = 1 %", fontsize=9.5)
        times = [y for points in lines.values() for _, y in points]
        ticks = [10**e * m for e in range(-1, 4) for m in (1, 3)]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_ylim(min(times) / 1.5, max(times) * 1.5)
        axes.minorticks_off()
        grid(axes)
        name_lines(axes, ends)
    panels[0].set_ylabel("simulated time of a call (ms)")


def numbers_selected():
    found = pages.ok_topk.selected_counts()
    lines = {name: [[r["window"] * (w + 0.5), count] for w, count in enumerate(r["selected"]) if count >= 1]
             for name, r in found.items()}
    own = found["ok_topk"]
    lines["ok_topk, sum"] = [[own["window"] * (w + 0.5), count] for w, count in enumerate(own["summed"])]
    return lines | {"k": own["parameters"] * own["density"]}


@plot("Number of selected entries against the steps of a training, by Ok-Topk, by Gaussiank and by Gaussiank without "
      "an adjustment", numbers_selected, (7, 3.3))
def ok_topk_selected(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.78, bottom=0.16, top=0.96)
    axes.set_yscale("log")
    axes.axhline(data["k"], color="black", linewidth=1, linestyle="--")
    ends = []
    for number, name in enumerate(name for name in data if name != "k"):
        axes.plot(*zip(*data[name]), color=COLOURS[number], linewidth=1.4)
        ends.append((name, *data[name][-1], COLOURS[number]))
    ends.append(("k, exactly", data[name][-1][0], data["k"], "#000000"))
    axes.set_xlabel("steps")
    axes.set_ylabel("entries, mean of 32 steps")
    axes.set_ylim(0.5, 5000)
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    grid(axes)
    name_lines(axes, ends, gap=11)


def topk_times_of(name, link="1 Gbit/s"):
    """Milliseconds by the number of ranks, of the model or simulated."""
    found = {}
    for r in sorted(raw.read_json(name), key=lambda r: r["ranks"]):
        for system in ("ok_topk", "ok_topk+coded", "ok_topk+pruned"):
            if r.get("link", link) == link and r.get("system", system) == system:
                found.setdefault(system, []).append([r["ranks"], 1e3 * (r["seconds"] if "seconds" in r else r[system])])
    return found


def pruned_from():
    lines = {}
    for r in raw.read_json("topk_crossover.json"):
        if r["pruned_from"] > 0:
            lines.setdefault(r["link"], []).append([r["ranks"], r["pruned_from"]])
    return lines


@plot("Milliseconds of Ok-Topk by three schedules against the number of ranks, by the model and simulated, and the "
      "number of entries from which pruning pays",
      lambda: {"model": topk_times_of("topk_crossover.json"), "simulated": topk_times_of("scaling_topk.json"),
               "pruned from": pruned_from()}, (7, 3.9))
def scaling_topk(figure, data):
    times, limits = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.88, bottom=0.14, top=0.91, wspace=0.75)
    ends = []
    for number, (name, points) in enumerate(data["model"].items()):
        times.plot(*zip(*points), color=COLOURS[number], linewidth=1.4)
        times.plot(*zip(*data["simulated"][name]), MARKERS[number], color=COLOURS[number], markersize=5)
        ends.append((name, *points[-1], COLOURS[number]))
    times.set_title("k = 1 % of 1,048,576, 1 Gbit/s", fontsize=9.5)
    times.set_ylabel("ms of a call (line: model, mark: simulated)")
    bounds = draw_lines(limits, data["pruned from"])
    limits.set_title("k from which pruning pays", fontsize=9.5)
    limits.set_ylabel("k of 100,000,000 values")
    for axes, names in ((times, ends), (limits, bounds)):
        axes.set_yscale("log")
        counts(axes, [2, 16, 256, 4096], "ranks P")
        grid(axes)
        name_lines(axes, names)


@plot("Predicted time divided by measured time, against the bytes that a rank sends, on three emulated networks",
      lambda: [[f"{r['hosts']} hosts, {r['link']}", r["megabytes"], r["ratio"]] for r in raw.predictions()])
def scaling_accuracy(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.97, bottom=0.15, top=0.9)
    axes.axhspan(0.9, 1.1, color="#DDDDDD", linewidth=0)
    axes.axhline(1, color="black", linewidth=1)
    axes.axvline(0.8, color=GREY, linewidth=1, linestyle=":")
    for number, network in enumerate(dict.fromkeys(n for n, _, _ in data)):
        label = network.replace("gbit", " Gbit/s").replace("mbit", " Mbit/s")
        axes.plot(*zip(*[(x, y) for n, x, y in data if n == network]), MARKERS[number], color=COLOURS[number],
                  markersize=5, alpha=0.8, label=label)
    axes.set_xscale("log")
    axes.set_xticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    axes.set_xlabel("payload that the rank which sends most sends (MB)")
    axes.set_ylabel("predicted / measured time")
    axes.text(0.85, 1.27, "0.8 MB", fontsize=8, color=GREY, va="top")
    grid(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, borderaxespad=0)


# FlexReduce


@plot("Seconds of an allreduce of 16 MiB over hosts with two to four ranks each, by five systems",
      lambda: {s: [[hosts, pages.flexreduce.on_tree(hosts, s)["seconds"]] for hosts in pages.flexreduce.HOSTS]
               for s in ("flexreduce", "hierarchical", "blueconnect", "ring", "mpi")}, (7, 3.8))
def flexreduce(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.14, top=0.91)
    width = 0.16
    for number, (name, points) in enumerate(data.items()):
        at = [place + width * (number - 2) for place in range(len(points))]
        colour = GREY if name == "mpi" else COLOURS[number]
        axes.bar(at, [y for _, y in points], width * 0.9, color=colour, linewidth=0,
                 label="MPI_Allreduce" if name == "mpi" else name)
    hosts = [h for h, _ in data["ring"]]
    axes.set_xticks(range(len(hosts)), [h.replace(",", " + ") for h in hosts], fontsize=8.5)
    axes.set_xlabel("ranks on the hosts")
    axes.set_ylabel("median time of a call (s)")
    axes.grid(True, axis="y", alpha=0.35, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False, borderaxespad=0, fontsize=8.5,
                columnspacing=1.2, handlelength=1.2)


def on_links():
    lines = {}
    for r in raw.read_json("flexreduce.json"):
        lines.setdefault(r["system"], []).append([r["density"], r["root_link_bytes"] * 1e-6])
    return lines


@plot("Megabytes on the busiest link of a host against the density, by five systems on 16 simulated hosts", on_links)
def flexreduce_streams(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.83, bottom=0.15, top=0.96)
    axes.set_yscale("log")
    ends = draw_lines(axes, data)
    percents(axes, sorted({x for points in data.values() for x, _ in points}))
    axes.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    axes.set_ylabel("payload on the busiest host link (MB)")
    grid(axes)
    name_lines(axes, ends)


def by_size():
    of = pages.flexreduce
    return {hosts: {system: [[4 * n / MI, of.of_size(hosts, n, system)] for n in of.all_sizes()]
                    for system in ("flexreduce", "hierarchical", "blueconnect", "ring", "mpi")}
            for hosts in of.size_hosts()}


@plot("Seconds of an allreduce against its size, by five systems, over emulated hosts with 5, 10 and 12 ranks", by_size,
      (7, 3.3))
def flexreduce_sizes(figure, data):
    panels = figure.subplots(1, len(data), sharey=True)
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.16, top=0.84, wspace=0.08)
    for axes, (hosts, lines) in zip(panels, data.items()):
        axes.set_yscale("log")
        for number, (name, points) in enumerate(lines.items()):
            axes.plot(*zip(*points), label="MPI_Allreduce" if name == "mpi" else name, **look(number))
        counts(axes, [round(mib) for mib, _ in lines["ring"]], "MiB of a rank")
        axes.set_title(f"{hosts.replace(',', ' + ')} ranks", fontsize=9.5, loc="left", pad=4)
        grid(axes)
    panels[0].set_ylabel("median time of a call (s)")
    figure.legend(*axes.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.09, 1.0), ncols=5,
                  frameon=False, fontsize=8.5, columnspacing=1.2, handlelength=1.4)


# Late ranks


def speed_by_delay():
    lines = {p: [[1e3 * d, pages.late_ranks.hyperplane(p, d, "hyperplane.txt")["ratio"]] for d in (0.02, 0.03, 0.04)]
             for p in ("solo", "quorum:4", "majority")}
    limit = [[d, (32 + d) / (32 + d / 8)] for d in (20, 25, 30, 35, 40)]
    quiet = [[1e3 * d, pages.late_ranks.hyperplane("solo", d)["ratio"]] for d in (0.02, 0.03, 0.04)]
    return lines | {"limit": limit, "solo, quiet machine": quiet}


@plot("Steps per second relative to waiting for everyone, against the delay of a late rank, by three participations",
      speed_by_delay, (7, 3.3))
def late_ranks(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.78, bottom=0.16, top=0.92)
    ends = draw_lines(axes, {name: points for name, points in data.items() if name in ("solo", "quorum:4", "majority")})
    axes.plot(*zip(*data["limit"]), color="black", linewidth=1, linestyle="--")
    axes.plot(*zip(*data["solo, quiet machine"]), "o", markersize=8, markerfacecolor="none", color=COLOURS[0])
    ends.append(("limit without\nany waiting", *data["limit"][-1], "#000000"))
    axes.axhline(1, color=GREY, linewidth=1)
    axes.text(20, 1.02, "everyone", fontsize=8.5, color=GREY)
    axes.set_xticks([20, 30, 40])
    axes.set_xlabel("delay of the late rank (ms), in steps of 32 ms")
    axes.set_ylabel("steps per second / everyone's")
    grid(axes)
    name_lines(axes, ends, gap=16)


def histories(name, x):
    return {r["system"]: [[p[x], 100 * p["accuracy"]] for p in r["history"]] for r in raw.read_json(name)}


@plot("Test accuracy against the seconds that the steps took, where ranks are late",
      lambda: histories("training_late.json", "seconds"), (7, 3.3))
def late_training(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.97, bottom=0.16, top=0.96)
    for number, (name, points) in enumerate(data.items()):
        axes.plot(*zip(*points), label=name, **look(number))
    axes.set_xlabel("time of all steps (s)")
    axes.set_ylabel("test accuracy (%), mean of three seeds")
    axes.set_xlim(0)
    grid(axes)
    axes.legend(loc="lower right", frameon=False)


@plot("Test accuracy against the seconds of training on sequences of different lengths, by four participations",
      lambda: {p: [[h["seconds"], 100 * h["accuracy"]] for h in row["history"]]
               for p, row in pages.late_ranks.eager_sgd(**pages.late_ranks.UNEQUAL, average=0).items()}, (7, 3.3))
def late_sequences(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.97, bottom=0.16, top=0.96)
    for number, (name, points) in enumerate(data.items()):
        axes.plot(*zip(*points), label=name, **look(number))
    axes.set_xlabel("virtual time of all steps (s)")
    axes.set_ylabel("accuracy (%), mean of three seeds")
    axes.set_xlim(0)
    grid(axes)
    axes.legend(loc="lower right", frameon=False)


# Codecs

LINKS = {"20mbit": 20, "50mbit": 50, "200mbit": 200, "1gbit": 1000}


def relative_times(hosts):
    lines = {}
    for link, rate in LINKS.items():
        for codec, saved in pages.codecs.compressed(hosts, link, MI).items():
            lines.setdefault(codec, []).append([rate, 1 - saved[0]])
    return {codec: lines[codec] for codec in ("zfp:8+p2p", "zfp:16", "zfp:8", "bf16", "qsgd:8", "qsgd:4")}


@plot("Time of compressed rings divided by the time of the uncompressed ring, against the rate of the links",
      lambda: {"4 hosts": relative_times(4), "8 hosts": relative_times(8)}, (7, 3.7))
def codecs(figure, data):
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.09, right=0.87, bottom=0.14, top=0.91, wspace=0.08)
    for axes, (title, lines) in zip(panels, data.items()):
        axes.set_yscale("log")
        ends = draw_lines(axes, lines)
        axes.set_xscale("log")
        axes.set_xticks(list(LINKS.values()), [str(rate) for rate in LINKS.values()])
        axes.minorticks_off()
        axes.set_xlabel("rate of the links (Mbit/s)")
        axes.axhline(1, color="black", linewidth=1)
        axes.set_title(title, fontsize=9.5)
        grid(axes)
    panels[0].set_yticks([0.125, 0.25, 0.5, 1, 2, 4], ["1/8", "1/4", "1/2", "1", "2", "4"])
    panels[0].set_ylabel("time / time of the uncompressed ring")
    panels[0].text(20, 1.5, "below 1: compression pays", fontsize=8)
    name_lines(axes, ends)


# Training


def trained_systems():
    """All but bucket_q4, whose line is that of sparcml_q4."""
    return {name: points for name, points in histories("training.json", "bytes").items()
            if not name.startswith("bucket_q4")}


@plot("Test accuracy against the bytes that a rank has sent, by nine systems", trained_systems, (7, 3.8))
def training(figure, data):
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.97, bottom=0.14, top=0.83)
    for number, (name, points) in enumerate(data.items()):
        axes.plot([x * 1e-6 for x, _ in points], [y for _, y in points], label=name, **look(number))
    axes.set_xscale("log")
    axes.set_xticks([10, 100, 1000], ["10", "100", "1000"])
    axes.set_xlabel("payload and headers that a rank has sent (MB)")
    axes.set_ylabel("test accuracy (%), mean of three seeds")
    grid(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderaxespad=0, fontsize=8.5)


# Preloaded library


def preloaded():
    over_hosts = "over hosts, with --min-bytes 65536, which was the default then"
    wanted = {"one host, 2 ranks": (None, "", [16, 2**10, 2**14, 2**18, 2**22, 2**25, 2**26]),
              "4 hosts of 1": ("1,1,1,1", over_hosts, [2**16, 2**18, 2**20]),
              "8 hosts of 1": (",".join("1" * 8), over_hosts, [2**16, 2**18, 2**20]),
              "2 hosts of 2": ("2,2", "then FlexReduce", [2**20, 2**22])}
    found = {}
    for title, (hosts, after, sizes) in wanted.items():
        for library in pages.speed.LIBRARIES:
            last = [select(raw.preload(), library=library, hosts=hosts, bytes=size, after=after)[-1] for size in sizes]
            found.setdefault(title, {})[library] = [[r["bytes"], r["ratio"], r["low"], r["high"]] for r in last]
    return found


def size_name(size):
    return f"{size >> 20} MiB" if size >= 2**20 else f"{size >> 10} KiB" if size >= 2**10 else f"{size} B"


@plot("Time of MPI_Allreduce with the preloaded library divided by the time without it, against the size", preloaded,
      (7, 3.4))
def preload(figure, data):
    panels = figure.subplots(1, 4, sharey=True, width_ratios=[len(d["openmpi"]) + 0.8 for d in data.values()])
    figure.subplots_adjust(left=0.09, right=0.99, bottom=0.19, top=0.83, wspace=0.06)
    for axes, (title, libraries) in zip(panels, data.items()):
        for number, (library, points) in enumerate(libraries.items()):
            at = [place + 0.14 * (2 * number - 1) for place in range(len(points))]
            down = [ratio - low for _, ratio, low, _ in points]
            up = [high - ratio for _, ratio, _, high in points]
            axes.errorbar(at, [p[1] for p in points], yerr=[down, up], fmt=MARKERS[number], color=COLOURS[number],
                          markersize=5, linewidth=1, capsize=2, label=pages.speed.LIBRARIES[library])
        axes.axhline(1, color="black", linewidth=1)
        axes.set_yscale("log", base=2)
        axes.set_xlim(-0.6, len(points) - 0.4)
        axes.set_xticks(range(len(points)), [size_name(p[0]) for p in points], rotation=35, ha="right", fontsize=8,
                        rotation_mode="anchor")
        axes.set_title(title, fontsize=8.5)
        grid(axes)
    panels[0].set_yticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    panels[0].set_ylabel("time with / without the library")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.08, 1), ncols=2,
                  frameon=False)


def preloaded_training():
    return {link: {row["system"]: [[h["seconds"], 100 * h["accuracy"]] for h in row["history"]]
                   for row in pages.flexreduce.over_hosts("codecs", link=link)} for link in ("100mbit", "1gbit")}


@plot("Test accuracy against the seconds of training over four hosts, by the MPI library alone and with eight settings",
      preloaded_training, (7, 3.7))
def preload_training(figure, data):
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.14, top=0.78, wspace=0.06)
    for axes, (link, lines) in zip(panels, data.items()):
        for number, (name, points) in enumerate(lines.items()):
            axes.plot(*zip(*points), label=name, **look(number))
        axes.set_title(link.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s"), fontsize=9.5)
        axes.set_xlabel("time of all steps (s)")
        axes.set_xlim(0)
        grid(axes)
    panels[0].set_ylabel("test accuracy (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.08, 1.0), ncols=5,
                  frameon=False, fontsize=8.5, columnspacing=1.2, handlelength=1.4)
