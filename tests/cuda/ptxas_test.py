#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tests/cuda/ptxas_test.py [--table]

Compiles tests/cuda/kernels.cu for sm_90 (with SPAR_FULL or --table also for sm_80), and fails if ptxas reports that a
kernel keeps values in local memory (a stack frame or spilled registers), or if the table of kernels in
docs/guide/gpu.md lacks a kernel, or has other numbers than the ptxas that the page names. With --table, also prints the
registers, spills and shared memory of each kernel as a Markdown table. Exit status: 77 without nvcc.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ARCHITECTURES = ["sm_80", "sm_90"] if os.environ.get("SPAR_FULL") or "--table" in sys.argv else ["sm_90"]

# The rows of the table in docs/guide/gpu.md, by their beginnings, and the kernels of each. A row has the largest of the
# numbers of all kernels that a pattern matches.
ROWS = {
    "`take_at_least`:": ["take<float, uint32, uint32, false>"],
    "the same, with a vector": ["take<float, uint32, uint32, true>"],
    "`add`:": ["add<float>"],
    "`combine`:": ["combine<float, sum>"],
    "`finalize`:": ["finalize<float, average>"],
    "`find_any`:": ["find_any<*, float>"],
    "`fill`:": ["fill_rows<float>"],
    "`write_entries`:": ["write_entries<float, uint32, *"],
    "`copy_entries`:": ["copy_entries<float, uint32>"],
    "`assign_unlisted`:": ["assign_unlisted<float, uint32, *"],
    "`scatter_assign`:": ["scatter_assign<float, uint32>"],
    "`scatter`:": ["scatter<float, uint32, sum>"],
    "`gather`:": ["gather<float, uint32>"],
    "`scatter_difference`:": ["scatter_difference<float, uint32>"],
    "`largest`:": ["copy_candidates<float>", "find_digit<float>"],
    "`take_largest`:": ["take<float, uint32, cut<float> const?, false>"],
    "`topk`:": ["take<float, uint32, uint32 const?, false>", "divide_candidates<float, uint32>"],
    "`take_from_buckets`:": ["take_from_buckets<float, uint32>"],
    "`partition` ": ["partition<float, uint32, by_cut*"],
    "`copy_differing`:": ["copy_differing<float, uint32>"],
    "`find_bounds`:": ["find_bounds<uint32>"],
    "`check_indices`:": ["check_indices<uint32>"],
    "`count_reached`:": ["count_reached<float>"],
    "`moments`:": ["add_moments<values_to_add<float>*>"],
    "`merge` ": ["merge<float, uint32, sum>"],
    "`merge_many` ": ["merge_many<float, uint32, sum, *"],
    "`coalesce`:": ["fold_repeated<float, uint32, sum>"],
    "`encode_coded`:": ["encode_coded<coded_gaps<uint32*", "encode_coded<coded_distances<float, 0*"],
    "`decode_coded`:": ["decode_coded<decoded_gaps<uint32*", "decode_coded<decoded_distances<float, 0*"],
    "`find_origin`:": ["find_origin<float, *"],
    "QSGD, 8 bits: encode": ["qsgd_encode<8, float, position_random>"],
    "QSGD, 8 bits: decode": ["qsgd_decode<8, float>"],
    "bfloat16 and half, encode or decode": ["??code_short<*, float>"],
    "`reduce_short`:": ["reduce_short<*, float, sum>"],
    "zfp, 8 bits a value: encode": ["zfp_encode<float>"],
    "zfp, 8 bits a value: decode": ["zfp_decode<float>"],
}
# Kernels that are small parts of those of a row, or of calls in the order of a stream.
SHORT = {"check_messages", "count_call", "empty_cut", "find_windows", "join_messages", "list_messages", "pack_slices",
         "put_back", "slice_entries", "take_sample", "write_message"}

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
report = re.sub(r"\bspar::v\d+_\d+::", "spar::", report)

entry = re.compile(r"Compiling entry function '(?:void )?(.+?)\(.*?' for '(sm_\d+)'.*?"
                   r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
                   re.DOTALL)
registers, spills, failures = {}, {}, []
for name, architecture, frame, stores, loads, used in entry.findall(report):
    if name.startswith("cub::"):  # what CUB's headers instantiate
        continue
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


def cells_of(kernels):
    """What a row says of kernels: the registers of each for each architecture, the bytes spilled and shared."""

    def most(numbers):
        return str(max(numbers, default=0))

    of_each = [fnmatch.filter(registers, pattern) for pattern in kernels]
    used = [[most(registers[name].get(a, 0) for name in names) for a in ARCHITECTURES] for names in of_each]
    memory = [most(map(bytes_at_launch, names)) for names in of_each]
    return used, most(spills[name] for names in of_each for name in names), " and ".join(memory)


page = (ROOT / "docs/guide/gpu.md").read_text()
release = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
of_page = re.search(r"those of ptxas\s+of CUDA ([\d.]+)", page)[1]
rows = page.split("\n| kernel | bytes moved |")[1].split("\n\n")[0].splitlines()[2:]
for row in rows:
    label, *_, on_page, spilled, memory = (cell.strip() for cell in row.strip("|").split("|"))
    kernels = next((kernels for beginning, kernels in ROWS.items() if label.startswith(beginning)), None)
    if kernels is None:
        failures.append(f"docs/guide/gpu.md, a row of no kernel: {label}")
        continue
    have = [pair.split(" / ")[-len(ARCHITECTURES):] for pair in on_page.split(" and ")]  # sm_90 is the last one
    wanted = cells_of(kernels)
    if (have, spilled, memory) != wanted and f"release {of_page}," in release:  # others use other registers
        failures.append(f"docs/guide/gpu.md, {label}: {on_page} registers, {spilled} bytes spilled, {memory} shared; "
                        f"ptxas says {wanted}")
if len(rows) != len(ROWS):
    failures.append(f"docs/guide/gpu.md has {len(rows)} rows of kernels, expected {len(ROWS)}")
in_rows = {pattern.split("<")[0] for kernels in ROWS.values() for pattern in kernels}
missing = {name.split("<")[0] for name in registers if not any(fnmatch.fnmatch(name.split("<")[0], k) for k in in_rows)}
if missing != SHORT:
    failures.append(f"kernels without a row in docs/guide/gpu.md: {sorted(missing - SHORT)}; with a row, or not "
                    f"compiled: {sorted(SHORT - missing)}")
if "--table" in sys.argv:
    columns = [*(f"registers, {a}" for a in ARCHITECTURES), "bytes spilled", "bytes of shared memory"]
    print("| kernel | " + " | ".join(columns) + " |\n|---|" + "---:|" * len(columns))
    for name, by in sorted(registers.items()):
        cells = [*(by[a] for a in ARCHITECTURES), spills[name], bytes_at_launch(name)]
        print(f"| `{name}` | " + " | ".join(map(str, cells)) + " |")
print("\n".join(failures) or f"{len(registers)} kernels, none with local memory")
sys.exit(1 if failures else 0)
