#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tests/cuda/ptxas_test.py [--table]

Compiles tests/cuda/kernels.cu for sm_90 (with SPAR_FULL or --table also for sm_80), and fails if ptxas reports that a
kernel keeps values in local memory (a stack frame or spilled registers). With --table, also prints the registers of
each kernel as a Markdown table. Exit status: 77 without nvcc.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ARCHITECTURES = ["sm_80", "sm_90"] if os.environ.get("SPAR_FULL") or "--table" in sys.argv else ["sm_90"]

nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
if not Path(nvcc).exists():
    print("skipped: no nvcc")
    sys.exit(77)
host = shutil.which("g++-12") or shutil.which("g++")
with tempfile.TemporaryDirectory() as folder:
    targets = [f"-gencode=arch={a.replace('sm', 'compute')},code={a}" for a in ARCHITECTURES]
    command = [nvcc, "-std=c++20", "-ccbin", host, "--Werror", "all-warnings", *targets, "-Xptxas", "-v", "-I",
               ROOT / "include", "-c", ROOT / "tests/cuda/kernels.cu", "-o", os.path.join(folder, "kernels.o")]
    done = subprocess.run(command, capture_output=True, text=True)
if done.returncode != 0:
    sys.exit(done.stdout + done.stderr)
report = subprocess.run(["c++filt"], input=done.stderr, capture_output=True, text=True, check=True).stdout

entry = re.compile(r"Compiling entry function '(?:void )?(.+?)\(.*?' for '(sm_\d+)'.*?"
                   r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
                   re.DOTALL)
registers, failures = {}, []
for name, architecture, frame, stores, loads, used in entry.findall(report):
    name = name.replace("spar::kernel::", "").replace("detail::", "").replace("spar::", "")
    name = name.replace("unsigned int", "uint32").replace("unsigned long", "uint64").replace("long", "int64")
    registers.setdefault(name, {})[architecture] = int(used)
    if (frame, stores, loads) != ("0", "0", "0"):
        failures.append(f"{name} for {architecture}: stack {frame}, spills {stores} and {loads} bytes")
incomplete = [name for name, by in registers.items() if set(by) != set(ARCHITECTURES)]
if len(registers) < 20 or incomplete:
    failures.append(f"{len(registers)} kernels in the report of ptxas; not for every architecture: {incomplete}")
if "--table" in sys.argv:
    print("| kernel | registers, " + " | registers, ".join(ARCHITECTURES) + " |\n|---|" + "---:|" * len(ARCHITECTURES))
    for name, by in sorted(registers.items()):
        print(f"| `{name}` | " + " | ".join(str(by[a]) for a in ARCHITECTURES) + " |")
print("\n".join(failures) or f"{len(registers)} kernels, none with local memory")
sys.exit(1 if failures else 0)
