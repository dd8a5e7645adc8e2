#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""verdict_power.py [--runs N] [--iterations I,...]: how often spar_perf's verdicts are right. Each run compares the
ring of 1 MiB on two threads with itself, and with a ring that takes 5 % longer, and counts the verdicts."""

import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

SLOWER = """#pragma once
#include <spar/spar.hpp>
struct slower : spar::algorithm_defaults {
  static constexpr std::string_view name = "slower";
  template <spar::transport Net, spar::element T, spar::reduction<T> Op>
  spar::task<void> operator()(spar::channel<Net> net, std::span<T> x, Op op) const& {
    const double begin = net.net().now();
    const spar::ring ring;
    co_await ring(net, x, op);
    const double end = begin + 1.05 * (net.net().now() - begin);
    while (net.net().now() < end) {}
  }
};
"""

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--runs", type=int, default=100)
parser.add_argument("--iterations", default="20,50,100,200")
options = parser.parse_args()
perf = pathlib.Path(__file__).resolve().parents[1] / "scripts/perf"
with tempfile.TemporaryDirectory() as folder:
    header, rows = pathlib.Path(folder) / "slower.hpp", pathlib.Path(folder) / "rows.json"
    header.write_text(SLOWER)
    for iterations in options.iterations.split(","):
        verdicts = collections.Counter()
        for seed in range(options.runs):
            subprocess.run([perf, "--transport", "threads", "--ranks", "2", "--include", header, "--system",
                            "late=slower{}", "--systems", "ring,again=ring,late", "--count", "256K", "--density", "1",
                            "--iterations", iterations, "--seed", str(seed + 1), "--json", rows],
                           capture_output=True, check=True)
            for row in json.loads(rows.read_text())[1:]:
                verdicts[row["system"], row["against_reference"]["verdict"]] += 1
        counts = ", ".join(f"{system} {verdict}: {count}" for (system, verdict), count in sorted(verdicts.items()))
        print(f"{iterations} iterations, {options.runs} runs: {counts}", flush=True)
