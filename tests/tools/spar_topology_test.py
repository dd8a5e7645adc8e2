#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs spar_topology through the command line: the picture, the plan of the paper's figure 2 as JSON, usage.

spar_topology_test.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def run(*arguments, status=0, says=""):
    done = subprocess.run([sys.argv[1], *map(str, arguments)], capture_output=True, text=True, timeout=60)
    expect(done.returncode == status, f"{arguments}: status {done.returncode}, not {status}: {done.stderr}")
    expect(says in done.stdout + done.stderr, f"{arguments}: does not say '{says}' but {done.stdout}{done.stderr}")
    if status == 2:
        expect(len(done.stderr.strip().splitlines()) == 1, f"{arguments}: not one sentence: {done.stderr}")


def host(*ranks):
    return {"bandwidth": 1e10, "latency": 1e-6, "children": [{"rank": r} for r in ranks]}


with tempfile.TemporaryDirectory() as directory:
    directory = pathlib.Path(directory)
    two_hosts, plan, bad = directory / "two_hosts.json", directory / "plan.json", directory / "bad.json"
    two_hosts.write_text(json.dumps({"bandwidth": 1.25e8, "latency": 5e-5, "children": [host(0, 1), host(2, 3, 4)]}))
    run(two_hosts, says="  branch, 3 children, 1.25e+08 B/s, 5e-05 s\n    rank 2, 1e+10 B/s, 1e-06 s")
    run(two_hosts, "--plan", 12, "--json", plan, says="level 1: [2, 4) 2 -> 0")
    run(two_hosts, "--plan", 12, says="level  seconds to sum  sums that one rank owns (bound)\n")
    run(two_hosts, "--plan", 12, says="    1        0.000102  3\n")
    run(two_hosts, "--plan", 12, says="floats: 0.000212, half")
    found = json.loads(plan.read_text())
    expect(found["ranges"] == [[2, 5], [7, 10], [0, 2], [5, 7], [10, 12]], f"ranges {found['ranges']}")
    expect(found["subranges"][0] == [[0, 6], [6, 12], [0, 4], [4, 8], [8, 12]], f"{found['subranges'][0]}")
    expect(found["participants"][1][0] == [0, 2], f"participants {found['participants'][1]}")
    expect([found["n"], found["ranks"]] == [12, 5], f"n and ranks: {found}")
    expect([found["calls_mean"], found["calls_max"]] == [1.3, 2], f"calls: {found}")

    run(status=2, says="FILE is required")
    run(two_hosts, "--json", plan, status=2, says="--plan")
    run(two_hosts, "--plan", "many", status=2, says="many")
    run(directory / "none.json", status=2, says="cannot read")
    bad.write_text('{"children": [{"rank": 1}]}')
    run(bad, status=2, says="has rank 1; expected the ranks from 0 to 0")
    run(two_hosts, "--plan", 12, "--json", directory / "no" / "where", status=1, says="cannot write")

sys.exit(1 if failures else 0)
