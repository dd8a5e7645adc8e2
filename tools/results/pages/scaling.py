# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/scaling.md."""

import raw
from raw import only, select
from values import VALUES, between, table, value


def scaling_row(system, ranks):
    return only(raw.read_json("scaling.json"), system=system, ranks=ranks)


def milliseconds(system, ranks):
    return f"{1e3 * scaling_row(system, ranks)['seconds']:.2f} ms"


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


def share_of_dense(system):
    return f"{100 * scaling_row(system, 4096)['seconds'] / scaling_row('dense', 4096)['seconds']:.0f} %"


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


VALUES |= {
    "scaling_few_ranks": lambda: f"{milliseconds('sparcml', 16)} (`dense` {milliseconds('dense', 16)})",
    "scaling_many_ranks": lambda: f"{milliseconds('sparcml', 4096)} (`dense` {milliseconds('dense', 4096)})",
    "scaling_coded":
        lambda: f"{milliseconds('sparcml+coded', 1024)} on 1024 ranks (`sparcml` {milliseconds('sparcml', 1024)})",
    "scaling_gtopk": lambda: milliseconds("gtopk", 4096),
    "scaling_pruned_gbit":
        lambda: f"{only(raw.read_json('topk_crossover.json'), link='1 Gbit/s', ranks=8)['pruned_from']:,}",
    "scaling_pruned_ranks":
        lambda: str(max(r["ranks"] for r in select(raw.read_json("topk_crossover.json"), link="1 Gbit/s")
                        if r["pruned_from"] > 0)),
    "scaling_share_gtopk": lambda: share_of_dense("gtopk"),
    "scaling_share_sparcml": lambda: share_of_dense("sparcml"),
    "scaling_within_4": lambda: within(4, "1gbit"),
    "scaling_within_8": lambda: within(8, "250mbit"),
    "scaling_within_8_fast": lambda: within(8, "1gbit"),
}
