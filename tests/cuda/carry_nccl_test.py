#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/carry_nccl keeps the code for one architecture of a library, and fills that for all others with zeros."""

import lzma
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "carry_nccl"
KERNEL = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n"


def run(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True)


def main():
    if not pathlib.Path(NVCC).exists():
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name)
        (room / "k.cu").write_text(KERNEL)
        built = [run(NVCC, "-cubin", f"-arch=sm_{a}", room / "k.cu", "-o", room / f"{a}.cubin") for a in (80, 90)]
        built.append(run(NVCC, "-shared", "-Xcompiler", "-fPIC", "-no-compress", "-gencode=arch=compute_80,code=sm_80",
                         "-gencode=arch=compute_90,code=[sm_90,compute_90]", room / "k.cu", "-o", room / "k.so"))
        assert all(b.returncode == 0 for b in built), [b.stderr for b in built]
        code = {a: (room / f"{a}.cubin").read_bytes() for a in (80, 90)}
        before = (room / "k.so").read_bytes()
        assert all(c in before for c in code.values()) and b".target sm_90" in before
        with zipfile.ZipFile(room / "wheel", "w") as wheel:
            wheel.write(room / "k.so", "nvidia/nccl/lib/libnccl.so.2")
            wheel.writestr("nvidia/nccl/include/nccl.h", "header")

        for kept, other in ((90, 80), (80, 90)):
            done = run(SCRIPT, room / "wheel", kept, room)
            assert done.returncode == 0, done.stderr
            after = lzma.open(room / "libnccl.so.2.xz").read()
            assert len(after) == len(before)
            assert code[kept] in after and code[other] not in after and b".target sm_90" not in after, kept
            first = before.index(code[other])
            assert not any(after[first:first + len(code[other])])
        assert (room / "nccl.h").read_text() == "header"

        done = run(SCRIPT, room / "wheel", 75, room)
        assert done.returncode != 0 and "no code for architecture 75" in done.stderr, done.stderr
    print("carry_nccl: one architecture kept")


if __name__ == "__main__":
    main()
