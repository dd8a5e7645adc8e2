#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs scripts/results --check on the pages, which must agree with the recorded measurements, and on copies with a
wrong number, a wrong plot or other measurements, which must fail with a sentence that names the place."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
failures = []


def check(root):
    done = subprocess.run([root / "scripts" / "results", "--check"], capture_output=True, text=True)
    return done.returncode, done.stderr


def expect(root, status, says):
    found, errors = check(root)
    if found != status or says not in errors:
        failures.append(says)
        print(f"FAILED: status {found}, expected {status} with '{says}':\n{errors}")


def change(path, pattern, replacement):
    before = path.read_text(encoding="utf-8")
    after, times = re.subn(pattern, replacement, before, count=1)
    assert times == 1 and after != before, f"{path} has no {pattern}"
    path.write_text(after, encoding="utf-8")
    return lambda: path.write_text(before, encoding="utf-8")


expect(ROOT, 0, "")
if failures:
    sys.exit(1)  # the copies would fail for the same reason

with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder)
    for name in ("bench/results", "docs", "scripts", "tools"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", copy)
    docs, recorded = copy / "docs", copy / "bench" / "results"

    for path, pattern, replacement, says in [
        (docs / "results/index.md", r"(=speed_sparse -->)0\.084", r"\g<1>0.048", "index.md: speed_sparse is '0.048'"),
        (docs / "results/speed.md", r"\*\*1\.7\*\*", "1.0", "speed.md: speed is "),
        (docs / "results/speed.md", "=speed_sparse_libraries", "=unknown", "there is no number or table 'unknown'"),
        (docs / "results/codecs.md", "<!-- =codecs -->", "<!-- -->", "no page shows the number or table 'codecs'"),
        (docs / "pictures/results_speed.svg", "sha256:", "sha1:", "results_speed.svg shows other data"),
        (recorded / "choosing_4_hosts.txt", r"0\.022", "0.122", "results_speed.svg shows other data"),
        (recorded / "perf_openmpi.txt", r"0\.084", "0.184", "but the measurements say '0.18'"),
    ]:
        undo = change(path, pattern, replacement)
        expect(copy, 1, says)
        undo()
    expect(copy, 0, "")

sys.exit(1 if failures else 0)
