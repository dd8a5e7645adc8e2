#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""volume_bound.py [--count N] [--ranks P,...] [--gradients FILE]

What ranks must send for the k largest sums of their k largest values. An oracle tells all ranks which entries win. Of a
winner to which c ranks contribute, c - 1 values go to one rank, and the sum goes to P - 1 ranks; a value has the bits
of the Rice code of storage::coded. A rank learns the winners' indices by their entropy: which of its own entries won,
and which others. Prints a JSON object for each pattern of spar_perf and number of ranks: the mean over the ranks in
units of 2 k words of 4 bytes, for one step, k = n / 100, without residuals. With --gradients, prints the object for
the ranks' gradients in FILE, which train_images --save-gradients has written, and no other.
"""

import argparse
import array
import json
import math
import pathlib
import random
import struct

BLOCK = 128  # entries of a block with one parameter of the Rice code


def bits_of(values):
    """Bits of a value of float32: its pattern minus that of the smallest magnitude, and its sign, by the Rice code."""
    patterns = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    base = min(p & 0x7FFFFFFF for p in patterns)
    numbers = [((p & 0x7FFFFFFF) - base) << 1 | p >> 31 for p in patterns]
    total = 0
    for first in range(0, len(numbers), BLOCK):
        block = numbers[first:first + BLOCK]
        low = int(0.4812 * (sum(block) / len(block) + 0.5)).bit_length()
        total += 8 + sum(low + 1 + (x >> low) for x in block)
    return total / len(numbers)


def choices(k, n):
    """Bits that say which k of n."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def tail():
    """A value with heavy tails: u^(-1/4) with a random sign."""
    return random.choice((-1, 1)) * (1 - random.random()) ** -0.25


def largest(values, k):
    return dict(sorted(values, key=lambda entry: -abs(entry[1]))[:k])


def gaussian(ranks, n, k):
    return [largest(((i, random.gauss(0, 1)) for i in range(n)), k) for _ in range(ranks)]


def drift(ranks, n, k):
    def less_one(x):
        return x - math.copysign(1, x)

    signal = [random.uniform(-1, 1) * less_one(tail()) for _ in range(n)]
    return [largest(((i, s + less_one(tail())) for i, s in enumerate(signal)), k) for _ in range(ranks)]


def heavy(overlap):
    def entries(ranks, n, k):
        common = {i: tail() for i in random.sample(range(n), int(overlap * k))}
        found = []
        for _ in range(ranks):
            its = {i: v * max(1 + random.gauss(0, 1) / 2, 0.3) for i, v in common.items()}
            while len(its) < k:
                its.setdefault(random.randrange(n), tail())
            found.append(its)
        return found

    return entries


PATTERNS = {"drift": drift, "gaussian": gaussian, "heavy_0": heavy(0), "heavy_50": heavy(0.5), "heavy_100": heavy(1)}


def bound(ranks, n, k):
    """Of the entries that each rank has selected: index to value."""
    sums, contributors = {}, {}
    for its in ranks:
        for i, v in its.items():
            sums[i] = sums.get(i, 0) + v
            contributors[i] = contributors.get(i, 0) + 1
    won = largest(sums.items(), k)
    bits = sum(len(ranks) - 1 + contributors[i] - 1 for i in won) * bits_of(list(won.values()))
    for its in ranks:
        own = sum(i in its for i in won)
        bits += choices(own, k) + choices(len(won) - own, n - k)
    return bits / (64 * k * len(ranks))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--count", type=int, default=2**20)
parser.add_argument("--ranks", default="4,8")
parser.add_argument("--gradients", help="ranks' gradients, one after the other, as float32 values")
options = parser.parse_args()
random.seed(1)
RANKS = [int(p) for p in options.ranks.split(",")]


def row(pattern, p, n, select):
    """`select(p, n, k)` returns the entries that each of p ranks selects."""
    k = round(n / 100)
    units = round(bound(select(p, n, k), n, k), 4)
    return json.dumps({"pattern": pattern, "ranks": p, "n": n, "nnz_in": k, "bound": units})


def saved(values):
    def select(p, n, k):
        return [largest(enumerate(values[r * n:(r + 1) * n]), k) for r in range(p)]

    return select


if options.gradients:
    values = array.array("f", pathlib.Path(options.gradients).read_bytes())
    if len(RANKS) > 1 or len(values) % RANKS[0] != 0:
        parser.error(f"--ranks is {options.ranks}; expected one divisor of the {len(values)} values of the file")
    rows = [row("gradients", RANKS[0], len(values) // RANKS[0], saved(values))]
else:
    rows = [row(name, p, options.count, select) for name, select in PATTERNS.items() for p in RANKS]
print("[", ",\n".join(rows), "]", sep="\n")
