#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles suites from expressions by scripts/perf_suite, and runs them.

perf_suite_test.py BUILD: the folder of a build that has spar_perf

Without SPAR_FULL in the environment, omits most cases that compile a further suite or an invalid expression.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

build = sys.argv[1]
root = pathlib.Path(__file__).resolve().parents[2]
full = "SPAR_FULL" in os.environ
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def compiled(target, *arguments):
    return subprocess.run([root / "scripts/perf_suite", build, target, *arguments], capture_output=True, text=True,
                          timeout=300)


def compile_suite(*arguments):
    """Compiles systems, before "--", with the headers behind it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return compiled("spar_perf", *("system=" + a for a in arguments[:end]), *arguments[end:])


def refused(says, *arguments):
    expect_refused(says, arguments, compile_suite(*arguments))


def expect_refused(says, arguments, done):
    expect(done.returncode == 2, f"{arguments}: status {done.returncode}, {done.stdout}")
    expect(says in done.stderr, f"{arguments}: does not say '{says}' but {done.stderr}")
    expect(len(done.stderr.strip().splitlines()) == 1, f"{arguments}: not one sentence: {done.stderr}")


def rows(program, *arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        done = subprocess.run([program, *arguments, "--json", path], capture_output=True, text=True, timeout=100)
        expect(done.returncode == 0, f"{arguments}: status {done.returncode}, {done.stderr}")
        return {r["system"]: r for r in json.loads(path.read_text())}


# scripts/perf builds only the types that the command measures, and each system of --system takes part.
with tempfile.TemporaryDirectory() as directory:
    scripts = pathlib.Path(directory)
    shutil.copy(root / "scripts/perf", scripts)
    stand_ins = {"program": f'echo "$1 $2" >>{scripts}/built; echo {scripts}/echo',
                 "perf_suite": f"echo {scripts}/echo"} | dict.fromkeys(["echo", "mpirun", "ranks"], 'echo "$@"')
    for name, text in stand_ins.items():
        (scripts / name).write_text(f"#!/bin/sh\n{text}\n")
        (scripts / name).chmod(0o755)
    for arguments, target, passed in [
        ("--transport threads", "spar_perf_float none", "--transport threads"),
        ("--transport=sim --type float --index 32", "spar_perf_float none", "--transport sim --type float --index 32"),
        ("--transport threads --type double", "spar_perf none", "--transport threads --type double"),
        ("--transport threads --index=64", "spar_perf none", "--transport threads --index 64"),
        ("--type half", "spar_perf any", "--type half"),
        ("--mpi mpich", "spar_perf_float mpich", ""),
        ("--transport ucx --ranks 3", "spar_perf_float ucx", f"3 {scripts}/echo --transport ucx"),
        ("--transport threads --memory device", "spar_perf_gpu none", "--transport threads --memory device"),
        ("--transport sim --system mine=ring{}", "spar_perf_float none", "--transport sim"),  # all systems take part
        ("--transport sim --systems topka --system mine=ring{}", "spar_perf_float none",
         "--transport sim --systems topka --systems mine"),
        ("--transport sim --system mine=ring{} --system a=ring{} --systems=topka,mine", "spar_perf_float none",
         "--transport sim --systems topka,mine --systems a"),
        ("--transport sim --systems again=mine --system mine=ring{}", "spar_perf_float none",
         "--transport sim --systems again=mine"),
        ("--transport sim --systems minerva --system mine=ring{}", "spar_perf_float none",
         "--transport sim --systems minerva --systems mine"),
    ]:
        (scripts / "built").unlink(missing_ok=True)
        done = subprocess.run([scripts / "perf", *arguments.split()], capture_output=True, text=True, timeout=20)
        expect(done.returncode == 0, f"{arguments}: status {done.returncode}, {done.stderr}")
        built = (scripts / "built").read_text().splitlines()
        expect(built == ["spar_perf_options none", target], f"{arguments}: {built}")
        expect(done.stdout.strip().endswith(passed), f"{arguments}: passed '{done.stdout.strip()}'")
    # A wrong option is found before the systems are compiled.
    (scripts / "echo").write_text('#!/bin/sh\necho "$@" && exit 2\n')
    (scripts / "built").unlink()
    wrong = "--type complex --systems=ring --system mine=ring{} --system a=ring{}"
    done = subprocess.run([scripts / "perf", *wrong.split()], capture_output=True, text=True, timeout=20)
    expect(done.returncode == 2, f"{wrong}: status {done.returncode}")
    expect((scripts / "built").read_text() == "spar_perf_options none\n", f"{wrong}: {(scripts / 'built').read_text()}")
    expect(done.stdout == "mine,a, --type complex --systems ring\n", f"{wrong}: checked '{done.stdout}'")

# The names of spar's parts and the C++ expression are the same system: the same messages, words and results.
systems = ["mine=compose(exact_topk{.density = 0.01}, storage::as_half{}, split_allgather{})",
           "named=select=exact_topk:0.01,store=half,over=flat,by=split_allgather",
           "coded=select=gaussian:0.01,store=coo+qsgd:4,by=dsar_split", "buckets=select=bucket_topk:0.01",
           "star=own::star{}"]
headers = ["--", str(root / "examples/own_policies/policies.hpp")]
done = compile_suite(*systems, *headers)
expect(done.returncode == 0, f"does not compile: {done.stderr}")
if failures:
    sys.exit(1)
program = pathlib.Path(done.stdout.strip())
made = program.stat().st_mtime_ns
measured = "ring,star,mine,named,coded,buckets"
found = rows(program, *f"--ranks 3 --count 20K --density 0.01 --iterations 3 --check --systems {measured}".split())
expect(list(found) == measured.split(","), f"rows {list(found)}")
expect(all(r["correct"] is True for r in found.values()), f"wrong: {found}")
for key in ["messages", "words_sent", "words_received", "nnz_out"]:
    expect(found["mine"][key] == found["named"][key], f"{key}: {found['mine'][key]}, {found['named'][key]}")
expect(found["star"]["messages"] == 2, f"the root of a star sends {found['star']['messages']} messages")

# Without --systems, the suite's systems are measured behind spar's.
found = rows(program, *"--ranks 2 --count 1K --iterations 1".split())
own = list(found)[-5:]
expect(list(found)[0] == "sparcml" and own == ["mine", "named", "coded", "buckets", "star"], f"rows {list(found)}")

# A lossy system needs its bound.
if full:
    coded = "compose(then<coo, qsgd<4>>{}, dsar_split{})"
    lossy = compile_suite(f"bounded={coded}@0.15", f"blind={coded}").stdout.strip()
    checked = "--ranks 3 --count 20K --density 0.5 --iterations 1 --check --systems".split()
    found = rows(lossy, *checked, "bounded")["bounded"]
    expect(found["correct"] is True and 0 < found["max_error"] <= found["error_bound"], f"bounded: {found}")
    blind = subprocess.run([lossy, *checked, "blind"], capture_output=True, text=True)
    expect(blind.returncode == 1 and "NO: error" in blind.stdout, f"blind: {blind}")

# What is up to date is not compiled again; a changed header or library is.
again = compile_suite(*systems, *headers)
expect(again.stdout == done.stdout and program.stat().st_mtime_ns == made, "compiled again")
if full:
    tool = pathlib.Path(build) / "tools/CMakeFiles/spar_perf.dir/spar_perf/main.cpp.o"
    before = tool.stat()
    os.utime(tool)  # as if a header inside the precompiled header had changed
    try:
        compile_suite(*systems, *headers)
        expect(program.stat().st_mtime_ns > made, "not compiled again after the tool")
    finally:
        os.utime(tool, ns=(before.st_atime_ns, before.st_mtime_ns))
    with tempfile.TemporaryDirectory() as directory:
        header = pathlib.Path(directory) / "a header.hpp"
        header.write_text("inline spar::ring chosen() { return {}; }\n")
        own = ["own=chosen()", "--", str(header)]
        first = compile_suite(*own)
        made = pathlib.Path(first.stdout.strip()).stat().st_mtime_ns
        header.write_text("inline spar::recursive_doubling chosen() { return {}; }\n")
        expect(compile_suite(*own).stdout == first.stdout, f"another program: {first.stderr}")
        expect(pathlib.Path(first.stdout.strip()).stat().st_mtime_ns > made, "the changed header was not compiled")
        found = rows(first.stdout.strip(), *"--ranks 4 --count 1K --density 1 --iterations 1 --systems own".split())
        expect(found["own"]["messages"] == 2, f"the ring instead of recursive doubling: {found['own']['messages']}")
        for name in ["ring", "mpi", "quorum:2", "ring+half"]:
            taken = compile_suite(f"{name}=ring{{}}")
            ran = subprocess.run([taken.stdout.strip()], capture_output=True, text=True)
            expect(ran.returncode == 2 and "is already in use" in ran.stderr, f"{name}: {ran}")

# Errors: one sentence each, of the library if it has one.
refused("keeps the k largest entries of the sum, and the selector has no k", "bad=compose(balanced_owners{})")
if full:
    broken = pathlib.Path(build) / "bad.hpp"
    broken.write_text("int f() { return x; }\n")
    refused("was not declared", "bad=nothing{}")
    refused("given two parts for one slot", "bad=compose(coo{}, coo{})")
    refused("bad.hpp does not compile", "star=ring{}", "--", str(broken))
refused("needs NAME=EXPRESSION", "bad=")
refused("needs NAME=EXPRESSION", "compose(ring{})")
refused("unknown selector 'fast'; expected one of bucket_topk, everything, exact_topk", "bad=select=fast")
refused("expected gaussian:DENSITY", "bad=select=gaussian")
refused("expected a density after the colon", "bad=select=gaussian:many")
refused("unknown storage 'qsgd:3'", "bad=store=qsgd:3")
refused("at most two codecs", "bad=store=coo+half+half")
refused("'tau' is no option of spar::balanced_owners", "bad=select=exact_topk:k=3,by=balanced_owners:tau")
refused("has no k: use a selector", "bad=store=coded:fast,by=balanced_owners:tau=3")
refused("a tree needs plans", "bad=over=tree")
refused("needs at least one of select=, store= and by=", "bad=over=flat")
refused("unknown storage 'zfp:RATE'", "bad=store=zfp:RATE")
refused("expected a density after the colon", "bad=select=gaussian:1.2.3")
refused("must be a number, not 'many'", "bad=ring{}@many")
refused("there is no such file", "star=own::star{}", "--", "/nonexistent.hpp")

# Kernels: a selector, a storage and an operation beside the library's; what breaks its contract is not measured.
if (pathlib.Path(build) / "tools/spar_kernels").exists():
    done = compiled("spar_kernels", "selector=mine=own::at_least{.threshold = 2}", "merge=least=minimum{}",
                    "storage=cut=own::truncated{}@0.0078125", *headers)
    expect(done.returncode == 0, f"does not compile: {done.stderr}")
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "out.json"
        options = ["--benchmark_filter=(gaussian|uniform)/4096/", "--benchmark_min_time=0.001"]
        ran = subprocess.run([done.stdout.strip(), f"--benchmark_out={path}", *options], capture_output=True, text=True,
                             timeout=100)
        expect(ran.returncode == 0, f"kernels: {ran.stderr}")
        measured = {b["name"].removesuffix("/manual_time"): b for b in json.loads(path.read_text())["benchmarks"]}
    for name, model in {"select/mine/gaussian": "exact_topk", "select/exact_topk/gaussian": "exact_topk",
                        "merge/least/uniform": "sum", "merge/sum/uniform": "sum",
                        "encode_block/cut/gaussian": "bfloat16", "decode_block/qsgd8/uniform": "bfloat16"}.items():
        its = measured.get(name + "/4096")
        expect(its is not None, f"{name} is not among {sorted(measured)}")
        if its:
            expect(its["low"] <= its["vs_" + model] <= its["high"], f"{its}")
            expect(its["copy_%"] > 0 and its["ns_entry"] > 0, f"{its}")
            expect(its["label"] in ("faster", "slower", "cannot tell"), f"{its}")
    expect(measured["encode_block/cut/gaussian/4096"]["bits_value"] == 16, "16 bits of each value")
    for row in ["kernel", "select/mine/gaussian/4096 ", "encode_block/qsgd8/gaussian/4096 "]:
        expect(any(line.startswith(row) for line in ran.stdout.splitlines()), f"no row {row} in {ran.stdout}")
    ran = subprocess.run([done.stdout.strip(), "--benchmark_filter=nothing"], capture_output=True, text=True)
    expect(ran.returncode == 2 and "no kernel matches" in ran.stderr, f"no match: {ran}")
    if full:
        done = compiled("spar_kernels", "selector=many=exact_topk{.k = 5000}", *headers)
        options = ["--benchmark_filter=select/many/uniform/", "--benchmark_min_time=0.001"]
        ran = subprocess.run([done.stdout.strip(), *options], capture_output=True, text=True, timeout=100)
        expect(ran.returncode == 0 and "many refuses this length: the selector's k is 5000" in ran.stdout, f"k: {ran}")
        done = compiled("spar_kernels", "storage=cut=own::truncated{}@0.001", "storage=shorter=own::truncated{}@0.002",
                        *headers)
        ran = subprocess.run([done.stdout.strip()], capture_output=True, text=True, timeout=100)
        expect(ran.returncode == 2 and len(ran.stderr.strip().splitlines()) == 2, f"two broken contracts: {ran}")
        done = compiled("spar_kernels", "storage=cut=own::truncated{}@0.001", *headers)
        ran = subprocess.run([done.stdout.strip()], capture_output=True, text=True, timeout=100)
        expect(ran.returncode == 2 and "the block codec cut breaks its contract" in ran.stderr, f"contract: {ran}")
        expect(len(ran.stderr.strip().splitlines()) == 1 and ran.stdout == "", f"not one sentence: {ran}")
        for says, argument in {"only a system and a storage": "merge=a=sum{}@1",
                               "--selector bad does not compile: this is not a selector": "selector=bad=sum{}",
                               "--merge bad does not compile": "merge=bad=own::at_least{}"}.items():
            expect_refused(says, argument, compiled("spar_kernels", argument, *headers))
    ran = subprocess.run([f"{build}/tools/spar_kernels", "--bogus"], capture_output=True, text=True)
    expect(ran.returncode == 2, f"--bogus: status {ran.returncode}")
    for says, argument in {"cannot read /nonexistent": "--gradients=/nonexistent",
                           "needs the name": "--gradients"}.items():
        ran = subprocess.run([f"{build}/tools/spar_kernels", argument], capture_output=True, text=True)
        expect(ran.returncode == 2 and says in ran.stderr, f"{argument}: {ran}")

sys.exit(1 if failures else 0)
