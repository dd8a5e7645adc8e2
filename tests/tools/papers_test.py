#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/papers: the list of rows, usage, and that the recorded rows are those of the script. With SPAR_FULL in the
environment, measures a row."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAPERS = {"Ok-Topk", "SparCML", "FlexReduce", "eager-SGD", "Zhou et al."}
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def papers(*arguments):
    return subprocess.run([ROOT / "scripts/papers", *arguments], capture_output=True, text=True)


listed = papers("--list")
rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in listed.stdout.splitlines()}
expect(listed.returncode == 0 and len(rows) == len(listed.stdout.splitlines()), f"--list prints {listed.stdout}")
expect({said.split(",")[0] for said in rows.values()} == PAPERS, f"--list names the papers otherwise: {rows}")

unknown = papers("ok_topk_scaling", "nothing")
expect(unknown.returncode == 2 and "no row nothing" in unknown.stderr, f"an unknown row: {unknown}")
expect(papers("--nothing").returncode == 2, "an unknown option has another exit status")

recorded = json.loads((ROOT / "bench/results/papers.json").read_text(encoding="utf-8"))
expect(set(recorded) <= set(rows), f"no such rows: {set(recorded) - set(rows)}")
for name, row in recorded.items():
    expect(row["verdict"] in ("same", "less", "not seen") and row["commands"], f"{name} has {row}")
    expect(rows[name] == f"{row['paper']}, {row['place']}: {row['claim']}", f"{name} claims {rows[name]}")

if "SPAR_FULL" in os.environ:
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        path.write_text('{"another": {}}', encoding="utf-8")
        measured = papers("--short", "--json", str(path), "flexreduce_calls")
        expect(measured.returncode == 0 and "flexreduce_calls: same" in measured.stdout, f"a row: {measured}")
        found = json.loads(path.read_text(encoding="utf-8"))
        expect(list(found) == ["flexreduce_calls", "another"], f"the file has {list(found)}")
        expect(len(found["flexreduce_calls"]["commands"]) == 9, f"the row has {found['flexreduce_calls']}")

sys.exit(1 if failures else 0)
