#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws pictures of made-up measurements, and looks for what they must show in the SVG. Exit status 77 if matplotlib is
missing."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
failures = []
work = pathlib.Path(tempfile.mkdtemp())


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def draw(tool, content, *arguments, status=0, says=""):
    """The SVG that the tool draws of the content, which is text or becomes JSON."""
    source, picture = work / "in.json", work / "out.svg"
    source.write_text(content if isinstance(content, str) else json.dumps(content))
    picture.unlink(missing_ok=True)
    done = subprocess.run([TOOLS / tool, source, "--out", picture, *arguments], capture_output=True, text=True)
    if done.returncode == 77:
        sys.exit(77)
    expect(done.returncode == status, f"{tool} {arguments}: status {done.returncode}, not {status}: {done.stderr}")
    expect(says in done.stderr, f"{tool} {arguments}: does not say '{says}' but {done.stderr}")
    if status == 2:
        expect(len(done.stderr.strip().splitlines()) == 1, f"not one sentence: {done.stderr}")
    return picture.read_text() if picture.exists() else ""


# Files that are no output of spar: one sentence, in bounded time and memory. No figure is drawn, so that these cases
# need no matplotlib.
for tool in ["plot_perf", "plot_timeline", "plot_training"]:
    for name, says in [("/dev/zero", "it is a device"), (work, "cannot read"), (work / "none", "cannot read")]:
        command = [TOOLS / tool, name, "--out", work / "out.svg"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        expect(done.returncode == 2, f"{tool} {name}: status {done.returncode}")
        expect(says in done.stderr, f"{tool} {name}: {done.stderr}")
    for content in ["", "\0", "[" * 100000, "[NaN]", "[1e999]", "{}", "[{}]", '"a"', "[[]]", '[{"ph": "X", "ts": "a"}]',
                    '[{"ph": "X", "name": "wait", "cat": "wait", "ts": 1, "dur": "b", "pid": 0, "tid": 0}]',
                    '[{"system": 1}]', '[{"system": "a", "n": "1"}]', '[{"history": 1}]', '[{"history": [1]}]',
                    '[{"history": [{"accuracy": "a", "epoch": 1, "bytes": 1}]}]']:
        draw(tool, content, status=2)


def row(system, density, words, bound, **other):
    return {"system": system, "density": density, "ranks": 4, "n": 1000, "transport": "sim", "type": "float",
            "seconds": words * 1e-6, "seconds_min": words * 9e-7, "seconds_max": words * 2e-6,
            "words_sent_mean": words, "words_bound": bound, "phases": None, **other}


def count(pattern, svg):
    return len(re.findall(pattern, svg))


rows = [row(s, d, f * d * 1000, d * 1000) for s, f in [("mine", 2), ("ring", 1.5)] for d in (0.01, 0.1)]
labels = {"time": ["mine", "ring"], "volume": ["mine (at most 2.00 x bound)", "ring (at most 1.50 x bound)"]}
for y, words in labels.items():
    svg = draw("plot_perf", rows, "--y", y)
    for word in [*words, "sim, 4 ranks, n = 1000, float", "density k / n"]:
        expect(f">{word}<" in svg, f"{y}: the picture does not show '{word}'")
    expect(count('id="bound"', svg) == (2 if y == "volume" else 0), f"{y}: {count('id=.bound', svg)} bounds")

# With one density, the systems stand side by side.
for y, word in [("time", "mine"), ("volume", "ring (at most 1.50 x bound)")]:
    svg = draw("plot_perf", [r for r in rows if r["density"] == 0.1], "--y", y)
    expect(f">{word}<" in svg and ">density k / n<" not in svg, f"{y} at one density: no {word}, or an axis")
    expect(count('id="bound"', svg) == (2 if y == "volume" else 0), f"{y} at one density: other bounds")
svg = draw("plot_perf", [row("solo", 0.1, 5, None), row("ring", 0.1, 5, 5)], "--y", "volume")
expect(">solo<" in svg and count('id="bound"', svg) == 1, "a system without a bound")

phases = {"select": 1e-4, "encode": 0, "wait": 2e-4, "merge": 1e-4, "other": 3e-5}
svg = draw("plot_perf", [dict(r, phases=phases) for r in rows], "--y", "phases")
for word in [*phases, "time of a call, mean over the ranks (us)", "mine"]:
    expect(f">{word}<" in svg, f"phases: the picture does not show '{word}'")
for phase in phases:
    expect(count(f'id="phase-{phase}"', svg) == 4, f"{phase} is in {count(f'id=.phase-{phase}', svg)} of 4 bars")

draw("plot_perf", rows, "--y", "phases", status=2, says="run spar_perf with --phases")
draw("plot_perf", [dict(rows[0], phases={"wait": 1})], "--y", "phases", status=2, says="another version")
draw("plot_perf", [dict(rows[0], words_sent_mean=None)], "--y", "volume", status=2, says="no row counts the words")
draw("plot_perf", [], status=2, says="no rows")
draw("plot_perf", {"a": 1}, status=2, says="is not an output of spar_perf")
draw("plot_perf", "{", status=2, says="cannot read")
draw("plot_perf", [{"system": "mine"}], status=2, says="has no density")


def bar(rank, row, begin, length, name, category=None):
    event = {"name": name, "ph": "X", "pid": rank, "tid": row, "ts": begin, "dur": length}
    return dict(event, cat=category) if category else event


def message(phase, rank, row, time, number):
    return {"name": "message", "ph": phase, "pid": rank, "tid": row, "ts": time, "id": number, "cat": "message"}


trace = [bar(0, 1, 100, 50, "send to 1", "send"), bar(1, 1, 100, 60, "receive from 0", "receive"),
         bar(1, 1, 110, 50, "wait", "wait"), bar(1, 0, 160, 20, "compute"), message("s", 0, 1, 100, 7),
         message("f", 1, 1, 160, 7),
         {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0"}}]
svg = draw("plot_timeline", trace)
for word in ["rank 0", "rank 1", "compute", "send", "receive", "wait", "time (us)"]:
    expect(f">{word}<" in svg, f"the timeline does not show '{word}'")
for gid in ["send-0-1", "receive-1-1", "wait-1-1", "compute-1-0"]:
    expect(count(f'id="{gid}"', svg) == 1, f"the timeline has {count(f'id=.{gid}', svg)} bars {gid}")
expect(count('id="message"', svg) == 1, f"{count('id=.message', svg)} arrows for one message")
later = draw("plot_timeline", trace, "--from", "0.00007")
expect("compute-1-0" in later and "send-0-1" not in later and 'id="message"' not in later, "--from shows too much")
many = [e for i in range(500) for e in (message("s", 0, 1, 100, i), message("f", 1, 1, 160, i))]
expect("(400 of 500 messages have arrows)" in draw("plot_timeline", trace + many), "arrows are left out in silence")
draw("plot_timeline", trace, "--from", "5", status=2, says="nothing happens from 5.0 s")
draw("plot_timeline", trace, "--from", "2e-5", "--to", "1e-5", status=2, says="nothing happens")
draw("plot_timeline", [], status=2, says="has no events")
draw("plot_timeline", [{"ph": "X"}], status=2, says="is not a trace file of spar")
draw("plot_timeline", rows, status=2, says="is not a trace file of spar")

sys.exit(1 if failures else 0)
