#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""table.py FILE...: prints a table from one file per run, with lines `where case old new old`. Columns: the median of
new/old over all alternations, the lowest and highest median of a run, the ratio of the 10th percentiles (the cost on a
quiet machine) of new/old and of old/old, the 95th percentile of old/old (the slower over the faster of the two old
calls around a new one), and the median of old/old, which should be 1."""
import sys
from statistics import median

runs = {}
for number, name in enumerate(sys.argv[1:]):
    for line in open(name):
        words = line.split()
        if len(words) != 5:
            continue
        try:
            times = [float(w) for w in words[2:]]
        except ValueError:
            continue
        runs.setdefault((words[0], words[1]), {}).setdefault(number, []).append(times)


def unit(seconds):
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"


print(f"{'where':8} {'case':14} {'runs':>4} {'old':>9} {'new/old':>8} {'by run':>15} {'quiet new/old':>13} "
      f"{'quiet old/old':>13} {'old/old p95':>11} {'old/old median':>14}")
for (where, case), of in runs.items():
    ratio = {run: median(n / ((a + b) / 2) for a, n, b in samples) for run, samples in of.items()}
    everything = [t for samples in of.values() for t in samples]
    middle = median(n / ((a + b) / 2) for a, n, b in everything)
    noise = sorted(max(a, b) / min(a, b) for a, n, b in everything)
    p95 = noise[min(len(noise) - 1, int(0.95 * len(noise)))]
    low = [sorted(t[i] for t in everything)[len(everything) // 10] for i in range(3)]
    quiet, quiet_old = low[1] / ((low[0] + low[2]) / 2), low[2] / low[0]
    bias = median(b / a for a, n, b in everything)
    span = f"{min(ratio.values()):.3f}..{max(ratio.values()):.3f}"
    typical = unit(median(a for a, n, b in everything))
    print(f"{where:8} {case:14} {len(of):4} {typical:>9} {middle:8.3f} {span:>15} {quiet:13.3f} {quiet_old:13.3f} "
          f"{p95:11.3f} {bias:14.3f}")
