#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tests/cuda/ptxas_test.py [--table]

Compiles tests/cuda/kernels.cu for sm_90 (with SPAR_FULL or --table also for sm_80), and fails if ptxas reports that a
kernel keeps values in local memory (a stack frame or spilled registers). With --table, also prints the registers,
spills and shared memory of each kernel as a Markdown table. Exit status: 77 without nvcc.
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
               ROOT / "include", ROOT / "tests/cuda/kernels.cu", "-o", os.path.join(folder, "kernels")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    at_launch = subprocess.run([os.path.join(folder, "kernels")], capture_output=True, text=True, check=True).stdout
shared = {name: int(size) for name, size in (line.split() for line in at_launch.splitlines())}
report = subprocess.run(["c++filt"], input=done.stderr, capture_output=True, text=True, check=True).stdout

entry = re.compile(r"Compiling entry function '(?:void )?(.+?)\(.*?' for '(sm_\d+)'.*?"
                   r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
                   re.DOTALL)
registers, spills, failures = {}, {}, []
for name, architecture, frame, stores, loads, used in entry.findall(report):
    name = name.replace("spar::kernel::", "").replace("detail::", "").replace("spar::", "")
    name = name.replace("unsigned int", "uint32").replace("unsigned long", "uint64").replace("long", "int64")
    registers.setdefault(name, {})[architecture] = int(used)
    spills[name] = spills.get(name, 0) + int(stores) + int(loads)
    if (frame, stores, loads) != ("0", "0", "0"):
        failures.append(f"{name} for {architecture}: stack {frame}, spills {stores} and {loads} bytes")
incomplete = [name for name, by in registers.items() if set(by) != set(ARCHITECTURES)]
if len(registers) < 20 or incomplete:
    failures.append(f"{len(registers)} kernels in the report of ptxas; not for every architecture: {incomplete}")


def bytes_at_launch(name):
    """The shared memory of a block; the longest beginning of the name decides, as `int` begins `int64`."""
    found = [prefix for prefix in shared if name.replace(" ", "").startswith(prefix)]
    return shared[max(found, key=len)] if found else 0


unknown = [prefix for prefix in shared if not any(name.replace(" ", "").startswith(prefix) for name in registers)]
if unknown:
    failures.append(f"kernels with shared memory that the report of ptxas lacks: {unknown}")
if "--table" in sys.argv:
    columns = [*(f"registers, {a}" for a in ARCHITECTURES), "bytes spilled", "bytes of shared memory"]
    print("| kernel | " + " | ".join(columns) + " |\n|---|" + "---:|" * len(columns))
    for name, by in sorted(registers.items()):
        cells = [*(by[a] for a in ARCHITECTURES), spills[name], bytes_at_launch(name)]
        print(f"| `{name}` | " + " | ".join(map(str, cells)) + " |")
print("\n".join(failures) or f"{len(registers)} kernels, none with local memory")
sys.exit(1 if failures else 0)
