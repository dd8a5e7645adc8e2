# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/preload.md."""

import raw
from pages.flexreduce import epochs_of, how_run, over_hosts, saved_of
from raw import select
from values import MI, VALUES, number, percent, percents_between, table, value, with_range


@value
def preload():
    found = raw.read_json("preload_training.json")
    lines = [[f"`{r['system']}`", percent(r["history"][-1]["accuracy"])] for r in found]
    return table([name for name, _ in lines], [[accuracy for _, accuracy in lines]])


def preloaded(library, hosts, size, after="over hosts, with --min-bytes 65536, which was the default then"):
    """The last such measurement in the file."""
    return select(raw.preload(), library=library, hosts=hosts, bytes=size, after=after)[-1]


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


VALUES |= {
    "preload_large": lambda: number(preloaded("openmpi", None, 64 * MI, after="")["ratio"]),
    "preload_hosts": lambda: number(preloaded("openmpi", "1,1,1,1", MI)["ratio"]),
    "preload_slower": lambda: number(preloaded("openmpi", "1,1,1,1,1,1,1,1", 2**16)["ratio"]),
    "preload_training_saved": lambda: saved_over("100mbit", "own"),
    "preload_training_saved_fast": lambda: saved_over("1gbit", "own"),
    "preload_training_saved_ring": lambda: saved_over("100mbit", "ring"),
    "preload_training_saved_ring_fast": lambda: saved_over("1gbit", "ring"),
    "preload_training_ring":
        lambda: " and ".join(f"{100 * saved_by_codec(link, 'ring'):.0f} %" for link in ("100mbit", "1gbit")),
    "preload_training_run": lambda: how_run("codecs"),
}
