# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/papers.md."""

import re
import textwrap

import raw
from values import table, value


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
