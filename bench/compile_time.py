#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures compile time (processor seconds at -O2, best of five rounds) and code size of small user programs.

bench/compile_time.py [COMPILER...]        compilers to compare; default: g++
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DENSE = "void f(spar::threads& net, std::span<float> x) {{ spar::allreduce(net, x{}); }}"
SPARSE = "auto f(spar::threads& net, spar::stream_view<float> x) {{ return spar::allreduce(net, x{}); }}"
PROGRAMS = {
    "the headers alone": "",
    "dense allreduce": DENSE.format(""),
    "dense recursive doubling": DENSE.format(", spar::recursive_doubling{}"),
    "sparse allreduce (sparcml)": SPARSE.format(""),
    "sparse recursive doubling": SPARSE.format(", spar::recursive_doubling{}"),
    "SSAR split-allgather": SPARSE.format(", spar::ssar_split{}"),
    "DSAR split-allgather": SPARSE.format(", spar::dsar_split{}"),
}


def seconds(command):
    before = os.times()
    subprocess.run(command, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def code_bytes(compiled):
    output = subprocess.run(["size", compiled], check=True, capture_output=True, text=True).stdout
    return int(output.splitlines()[1].split()[0])


with tempfile.TemporaryDirectory() as folder:
    best, size = {}, {}
    commands = {}
    for compiler in sys.argv[1:] or ["g++"]:
        for number, (name, program) in enumerate(PROGRAMS.items()):
            source = pathlib.Path(folder, f"{number}.cpp")
            source.write_text(f"#include <spar/spar.hpp>\n{program}\n", encoding="utf-8")
            compiled = pathlib.Path(folder, f"{number}.o")
            options = ["-std=c++20", "-O2", "-I", ROOT / "include", "-c", source, "-o", compiled]
            commands[compiler, name] = ([compiler, *options], compiled)
    for _ in range(5):
        for key, (command, compiled) in commands.items():
            best[key] = min(best.get(key, 1e9), seconds(command))
            size[key] = code_bytes(compiled)
    for (compiler, name), taken in best.items():
        print(f"{compiler:12} {name:28} {taken:6.2f} s {size[compiler, name]:8} bytes")
