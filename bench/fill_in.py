#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fill_in.py [--count N] [--density D,...] [--ranks P,...] [--rounds N] [--check]

How full the sum of sparse vectors is (SparCML, figure 1): P ranks have a share D of n entries each, and the sum has all
entries that a rank has. The ranks' entries are drawn uniformly, or by a power law: m draws of an entry, in which the
j-th most popular entry has a probability proportional to 1/j, where m gives n D different entries in the mean. Prints a
JSON object for each law, D and P: the share of the sum by the formula, and its mean, least and most over the rounds of
a Monte Carlo simulation. --check fails if a mean differs from the formula by more than 3 %.

Uniform: 1 - (1 - D)^P. Power law: the mean over all entries j of 1 - (1 - p_j)^(m P).
"""

import argparse
import itertools
import json
import math
import random
import sys


def popularity(n):
    """The probabilities of the entries by the power law."""
    total = sum(1 / j for j in range(1, n + 1))
    return [1 / (j * total) for j in range(1, n + 1)]


def share_drawn(p, draws):
    """The expected share of the entries that are drawn at least once."""
    return sum(-math.expm1(draws * math.log1p(-x)) for x in p) / len(p)


def draws_for(p, density):
    """The number of draws that gives the density in the mean, by bisection."""
    low, high = 0, 1
    while share_drawn(p, high) < density:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if share_drawn(p, middle) < density else (low, middle)
    return high


def uniform(n, density, ranks, rounds):
    """The share by the formula, and by each round."""
    k = round(density * n)
    found = []
    for _ in range(rounds):
        entries = set()
        for _ in range(ranks):
            entries.update(random.sample(range(n), k))
        found.append(len(entries) / n)
    return 1 - (1 - k / n) ** ranks, found


def power_law(n, density, ranks, rounds):
    p = popularity(n)
    cumulative = list(itertools.accumulate(p))
    m = draws_for(p, density)
    found = []
    for _ in range(rounds):
        entries = set()
        for _ in range(ranks):
            entries.update(random.choices(range(n), cum_weights=cumulative, k=m))
        found.append(len(entries) / n)
    return share_drawn(p, m * ranks), found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--density", type=lambda text: [float(d) for d in text.split(",")], default=[0.001, 0.01, 0.1])
    parser.add_argument("--ranks", type=lambda text: [int(p) for p in text.split(",")], default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    if chosen.count < 2 or chosen.rounds < 1 or min(chosen.ranks) < 1:
        parser.error("expected at least 2 entries, a round and a rank")
    if not all(1 <= d * chosen.count < chosen.count for d in chosen.density):
        parser.error(f"a density must leave 1 to {chosen.count - 1} of {chosen.count} entries")

    random.seed(1)
    apart = 0.0
    for law, density, ranks in itertools.product((uniform, power_law), chosen.density, chosen.ranks):
        expected, found = law(chosen.count, density, ranks, chosen.rounds)
        mean = sum(found) / len(found)
        apart = max(apart, abs(mean / expected - 1))
        print(json.dumps({"law": law.__name__, "count": chosen.count, "density": density, "ranks": ranks,
                          "formula": round(expected, 6), "mean": round(mean, 6), "min": round(min(found), 6),
                          "max": round(max(found), 6)}))
    if chosen.check and apart > 0.03:
        sys.exit(f"fill_in: a mean differs from the formula by {100 * apart:.1f} %")


main()
