# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/codecs.md."""

import raw
from raw import only, rows, select
from values import MI, VALUES, between, percent, table, value

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
def codecs_training_faster():
    plain, coded = with_codec("none", 8)["ring"], with_codec("qsgd:4", 8)["two_shot"]
    return f"{plain[1]['seconds'] / coded[1]['seconds']:.1f}"


@value
def codecs_threads():
    systems = ("ring+qsgd:8", "ring+bound:1e-3", "ring+zfp:8")
    ratios = [[r["ratio"] for r in select(rows("codecs_threads.txt"), system=system)] for system in systems]
    return table([f"`{system}`" for system in systems], [map(between, ratios)])


VALUES |= {
    "codecs_saved_zfp": lambda: f"{two_shot('1gbit', MI)['ring+zfp:8']} %",
    "codecs_saved_qsgd": lambda: f"{100 * compressed(4, '200mbit', MI)['qsgd:8'][0]:.0f} %",
    "codecs_training":
        lambda: codecs_trained(8, ["none", "qsgd:4", "mx:e2m1", "bound:1e-2",
                                   *(f"zfp:{bits}" for bits in (16, 12, 10, 8, 6, 4))]),
    "codecs_training_16": lambda: codecs_trained(16, ["none", "qsgd:4", "zfp:8"]),
    "codecs_training_4_bits":
        lambda: " and ".join(percent(with_codec("qsgd:4", 8)[by][0]["accuracy_mean"]) for by in ("two_shot", "ring")),
    "codecs_training_none": lambda: percent(with_codec("none", 8)["ring"][0]["accuracy_mean"]),
    "codecs_entries_coded": lambda: f"{100 / times_as_fast('ok_topk+coded', '1,1,1,1-100mbit')[0]:.0f} %",
    "codecs_entries_pruned": lambda: f"{100 / times_as_fast('ok_topk+pruned', '1,1,1,1-100mbit')[0]:.0f} %",
    "codecs_entries_doubling": lambda: f"{100 / times_as_fast('rec_doubling+coded', '1,1,1,1-100mbit')[0]:.0f} %",
}
