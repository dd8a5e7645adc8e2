#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tests/cuda/systems_test.py [NCCL_INCLUDE_DIR NCCL_LIBRARY]

Compiles tests/cuda/systems.cu, with every system of the papers, by nvcc for sm_80 and sm_90, over threads, NCCL (also
for sm_100), Open MPI and UCX, and links it with the CUDA runtime and these libraries. Where there is a GPU, the
programs run there; otherwise they must start, and end because there is no device. Names what it skips; exit status 77
without nvcc.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
if not Path(nvcc).exists():
    print("skipped: no nvcc")
    sys.exit(77)
transports = {"threads": []}
if len(sys.argv) == 3:
    include, library = sys.argv[1:]
    transports["NCCL"] = ["-DSPAR_OVER_NCCL", f"-I{include}", library, f"-Xlinker=-rpath={os.path.dirname(library)}"]
else:
    print("skipped: over NCCL (no nccl.h, or no libnccl)")
if shutil.which("mpicxx.openmpi"):
    shown = [subprocess.run(["mpicxx.openmpi", f"--showme:{what}"], capture_output=True, text=True, check=True).stdout
             for what in ("incdirs", "libdirs", "libs")]
    transports["MPI"] = ["-DSPAR_OVER_MPI"] + [f"{option}{word}" for option, words in zip(("-I", "-L", "-l"), shown)
                                               for word in words.split()]
else:
    print("skipped: over MPI (no Open MPI)")
if Path("/usr/include/ucp/api/ucp.h").exists():
    transports["UCX"] = ["-DSPAR_OVER_UCX", "-lucp", "-lucs"]
    if "NCCL" in transports:
        transports["NCCL and UCX"] = transports["NCCL"] + transports["UCX"]
else:
    print("skipped: over UCX (no libucx-dev)")
smi = shutil.which("nvidia-smi")
has_gpu = smi is not None and subprocess.run([smi, "-L"], capture_output=True).returncode == 0
failures = []
with tempfile.TemporaryDirectory() as folder:
    for name, options in transports.items():
        architectures = [80, 90, 100] if name == "NCCL" else [80, 90]
        targets = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures]
        program = os.path.join(folder, name)
        command = [nvcc, "-std=c++20", "-ccbin", shutil.which("g++-12") or "g++", "--Werror", "all-warnings",
                   "-diag-suppress", "177", *targets, f"-I{ROOT}/include",
                   f"{ROOT}/tests/cuda/systems.cu", *options, "-lpthread", "-o", program]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            failures.append(f"{name}: does not compile or link\n{done.stdout}{done.stderr}")
            continue
        start = [f"{ROOT}/scripts/ranks", "2"] if "UCX" in name else []
        ran = subprocess.run([*start, program], capture_output=True, text=True, timeout=120)
        as_expected = ran.returncode == 0 if has_gpu else ran.returncode == 2 and "cudaGetDeviceCount" in ran.stderr
        if not as_expected:
            failures.append(f"{name}: exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")
        else:
            print(f"{name}: compiled and linked for {architectures}, {'ran' if has_gpu else 'no GPU to run on'}")
print("\n".join(failures))
sys.exit(1 if failures else 0)
