#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles suites from expressions by scripts/perf_suite, and runs them.

perf_suite_test.py BUILD: the folder of a build that has spar_perf
"""

import json
import pathlib
import subprocess
import sys
import tempfile

build = sys.argv[1]
root = pathlib.Path(__file__).resolve().parents[2]
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def compile_suite(*arguments):
    return subprocess.run([root / "scripts/perf_suite", build, "spar_perf", *arguments], capture_output=True, text=True,
                          timeout=300)


def refused(says, *arguments):
    done = compile_suite("threads", *arguments)
    expect(done.returncode == 2, f"{arguments}: status {done.returncode}, {done.stdout}")
    expect(says in done.stderr, f"{arguments}: does not say '{says}' but {done.stderr}")
    expect(len(done.stderr.strip().splitlines()) == 1, f"{arguments}: not one sentence: {done.stderr}")


def rows(program, *arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        done = subprocess.run([program, *arguments, "--json", path], capture_output=True, text=True, timeout=100)
        expect(done.returncode == 0, f"{arguments}: status {done.returncode}, {done.stderr}")
        return {r["system"]: r for r in json.loads(path.read_text())}


# The names of spar's parts and the C++ expression are the same system: the same messages, words and results.
systems = ["mine=compose(exact_topk{.density = 0.01}, storage::half{}, split_allgather{})",
           "named=select=exact_topk:0.01,store=half,over=flat,by=split_allgather",
           "coded=select=gaussian:0.01,store=coo+qsgd:4,by=dsar_split",
           "star=own::star{}"]
headers = ["--", str(root / "examples/own_policies/policies.hpp")]
done = compile_suite("threads", *systems, *headers)
expect(done.returncode == 0, f"does not compile: {done.stderr}")
if failures:
    sys.exit(1)
program = pathlib.Path(done.stdout.strip())
made = program.stat().st_mtime_ns
measured = "ring,star,mine,named,coded"
found = rows(program, *f"--ranks 3 --count 20K --density 0.01 --iterations 3 --check --systems {measured}".split())
expect(list(found) == measured.split(","), f"rows {list(found)}")
expect(all(r["correct"] is True for r in found.values()), f"wrong: {found}")
for key in ["messages", "words_sent", "words_received", "nnz_out"]:
    expect(found["mine"][key] == found["named"][key], f"{key}: {found['mine'][key]}, {found['named'][key]}")
expect(found["star"]["messages"] == 2, f"the root of a star sends {found['star']['messages']} messages")

# Without --systems, the suite's systems are measured behind spar's.
found = rows(program, *"--ranks 2 --count 1K --iterations 1".split())
expect(list(found)[0] == "sparcml" and list(found)[-4:] == ["mine", "named", "coded", "star"], f"rows {list(found)}")

# What is up to date is not compiled again.
again = compile_suite("threads", *systems, *headers)
expect(again.stdout == done.stdout and program.stat().st_mtime_ns == made, "compiled again")

# Errors: one sentence each, of the library if it has one.
refused("keeps the k largest entries of the sum, and the selector has no k", "bad=compose(balanced_owners{})")
refused("was not declared", "bad=nothing{}")
refused("given two parts for one slot", "bad=compose(coo{}, coo{})")
refused("needs NAME=EXPRESSION", "bad=")
refused("needs NAME=EXPRESSION", "compose(ring{})")
refused("unknown selector 'fast'; expected one of everything", "bad=select=fast")
refused("expected gaussian:DENSITY", "bad=select=gaussian")
refused("expected a density after the colon", "bad=select=gaussian:many")
refused("unknown storage 'qsgd:3'", "bad=store=qsgd:3")
refused("at most two codecs", "bad=store=coo+half+half")
refused("for a tree, write C++", "bad=over=tree")
refused("there is no such file", "star=own::star{}", "--", "/nonexistent.hpp")

sys.exit(1 if failures else 0)
