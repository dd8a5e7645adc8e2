#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compile_time.py COMPILER SOURCE SECONDS: the source compiles at -O2 in less processor time, the best of three."""

import os
import subprocess
import sys

import tree


def compile_seconds(compiler, source):
    before = os.times()
    include = ["-I", tree.ROOT / "include"]
    subprocess.run([compiler, "-std=c++20", "-O2", *include, "-c", source, "-o", os.devnull], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


compiler, source, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
best = min(compile_seconds(compiler, source) for _ in range(3))
print(f"{best:.2f} s of processor time, the limit is {limit:g} s")
sys.exit(0 if best < limit else 1)
