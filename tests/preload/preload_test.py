#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Preloads libspar_mpi.so under MPI programs in C++ and Fortran: checks their results and the library's report.

preload_test.py openmpi|mpich PROGRAM LIBRARY DEVICE_PROGRAM DRIVERS

With SPAR_FULL in the environment, tries more numbers of ranks, algorithms and codecs, and trains a model.
"""

import ctypes.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
flavour, program, library, device_program, drivers = sys.argv[1:]
full = "SPAR_FULL" in os.environ
failures = []
os.environ |= {"SPAR_YIELD": "always", "SPAR_MPI_TIMEOUT": "100"}
yielding = pathlib.Path(library).parents[1] / "libspar_yield.so"
if yielding.exists():
    os.environ["SPAR_YIELD_LIBRARY"] = str(yielding)
KEYS = ["calls", "calls_passed", "passed_by_reason", "bytes_sent", "bytes_saved", "seconds"]
REASONS = ["short_vector", "type", "operation", "communicator", "device_memory", "arguments", "invalid_setting"]
directory = tempfile.TemporaryDirectory()
work = pathlib.Path(directory.name)


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def passed(report, **reasons):
    """Whether a report has exactly these numbers of calls passed on."""
    found = report["passed_by_reason"] if report else {}
    return list(found) == REASONS and found == dict.fromkeys(REASONS, 0) | reasons and \
        report["calls_passed"] == sum(reasons.values())


def run(ranks, *command, hosts=(), **settings):
    """Runs a program with the preloaded library; returns its status, its output and the library's report."""
    report = work / "report.json"
    report.unlink(missing_ok=True)
    settings.setdefault("SPAR_REPORT", str(report))
    variables = [f"{name}={value}" for name, value in settings.items()]
    # Before the libraries that scripts/mpirun itself preloads.
    shell = f'LD_PRELOAD="{library}${{LD_PRELOAD:+:$LD_PRELOAD}}" exec "$@"'
    inner = ["env", *variables, "sh", "-c", shell, "sh", *[str(word) for word in command]]
    launcher = [*hosts, str(ROOT / "scripts/mpirun"), flavour, str(ranks)]
    done = subprocess.run([*launcher, *inner], capture_output=True, text=True)
    found = json.loads(report.read_text()) if report.exists() else None
    return done.returncode, done.stdout + done.stderr, found


# Every type, operation and kind of communicator, also from several threads.
algorithms = ["automatic", "flexreduce"] + (["rabenseifner", "ring", "rec_doubling"] if full else [])
for ranks in [1, 2, 3, 4, 5, 8] if full else [1, 3]:
    for algorithm in algorithms:
        if algorithm != "automatic" and ranks != 3:
            continue
        status, said, report = run(ranks, program, SPAR_ALLREDUCE=algorithm, SPAR_MIN_BYTES="1")
        what = f"{algorithm} on {ranks} ranks"
        expect(status == 0, f"{what}: status {status}: {said}")
        expect(report is not None and list(report) == KEYS, f"{what}: the report is {report}")
        if report is None:
            continue
        expect((report["calls"] > 1000 * ranks) == (ranks > 1), f"{what}: {report['calls']} calls")
        expect(report["bytes_saved"] == 0, f"{what}: {report}")
        if ranks == 3:
            # Each rank: MPI_COMM_SELF twice, an intercommunicator, and 17 of 80 communicators, since 64 are taken
            # over; rank 1 also makes 2 * 196 calls on a communicator of its own.
            invalid = {"type": 1, "operation": 1, "arguments": 2} if flavour == "openmpi" else {}
            each = {"type": 3, "operation": 1, "arguments": 1, "communicator": 2 + 1 + 2 * 17}
            each = {why: 3 * (number + invalid.get(why, 0)) for why, number in each.items()}
            each["communicator"] += 2 * 196
            expect(passed(report, **each), f"{what}: {report}")
        expect((report["bytes_sent"] > 0) == (report["seconds"] > 0) == (ranks > 1), f"{what}: {report}")

# Sums of float and double are compressed only on request; the program then accepts errors of 5 %.
compressing = ["ring+qsgd:8", "two_shot+qsgd:8"]
if full:
    compressing += ["rec_doubling+bf16", "one_shot+bf16", "flexreduce+half", "hierarchical+half", "automatic+bf16"]
    if ctypes.util.find_library("zfp"):
        compressing.append("ring+zfp:16")
for setting in compressing:
    status, said, report = run(3, program, "lossy", SPAR_ALLREDUCE=setting, SPAR_MIN_BYTES="1")
    expect(status == 0, f"{setting}: status {status}: {said}")
    saved = report["bytes_saved"] if report else -1
    # Among ranks of one host, the cost model does not compress floats.
    expect(saved > 0 or setting.startswith("automatic"), f"{setting}: {saved} bytes saved")

# On a network that is known to be slow, `automatic` compresses, too.
slow = work / "slow.txt"
slow.write_text("alpha 5e-5\nbeta 4e-7\ngamma_dense 1e-9\ngamma_sparse 1e-9\n")
status, said, report = run(3, program, "lossy", SPAR_ALLREDUCE="automatic+bf16", SPAR_MIN_BYTES="1", SPAR_NETWORK=slow)
expect(status == 0 and report["bytes_saved"] > 0, f"automatic on a slow network: {status} {report} {said[:500]}")

# The MPI library itself handles device memory of one rank; if the driver is loaded after the first call, the values go
# through host memory. If copies fail, no rank waits for ever. If other devices may be present, the library takes over
# no more calls.
cases = [("early", 3, 12), ("late", 15, 0), ("pool", 15, 0), ("failing", 15, 0), ("other", 0, 3), ("other_late", 3, 12)]
for when, calls, left in cases if full else [cases[1], *cases[3:5]]:
    driver = f"{drivers}/lib{'ze_loader' if when.startswith('other') else 'cuda'}.so.1"
    status, said, report = run(3, device_program, driver, when, SPAR_MIN_BYTES="1")
    expect(status == 0, f"device memory, {when}: status {status}: {said}")
    expect("skipped: another" in said or report and report["calls"] == calls, f"device memory, {when}: {report}")
    expect("skipped: another" in said or passed(report, device_memory=left), f"{when}: {report}")

# The MPI library itself handles small vectors.
status, said, report = run(2, program, SPAR_MIN_BYTES="1000000000")
short = report["passed_by_reason"]["short_vector"] if report else 0
expect(status == 0 and report["calls"] == 0 and short > 1000, f"a threshold: {status} {report}")

# The library takes over exact calls from 32 MiB within a host and, between hosts, from the larger of 1 MiB and 128 KiB
# per rank; lossy calls from 64 KiB. Calls that are always exact follow the limits of exact calls.
network = [str(ROOT / "scripts/hosts"), "2,1", "10gbit"]
lacking = subprocess.run([*network, "true"], capture_output=True, text=True)
expect(lacking.returncode in (0, 77), f"hosts: {lacking.stderr}")
if lacking.returncode == 77:
    print("skipped: this machine cannot pretend to be several hosts")
else:
    status, said, report = run(3, program, hosts=network, SPAR_MIN_BYTES="1", SPAR_VERBOSE="1")
    expect(status == 0 and report and report["calls"] > 3000, f"over hosts: {status} {report} {said[:500]}")
    # Two ranks share a link; between many hosts only latency matters, so sharing does not.
    expect("values: flexreduce, because ranks share links" in said, f"over hosts: {said}")
    for plan in ("blueconnect", "hierarchical"):
        status, said, report = run(3, program, "exact", 1000, hosts=network, SPAR_MIN_BYTES="1", SPAR_ALLREDUCE=plan)
        expect(status == 0 and report and report["calls"] == 6, f"{plan} over hosts: {status} {report} {said[:500]}")
    distant = work / "distant.txt"
    distant.write_text("alpha 1\nbeta 1e-12\ngamma_dense 1e-12\ngamma_sparse 1e-12\n")
    many = [network[0], "2,1,1,1,1,1,1", network[2]]
    verbose = {"SPAR_MIN_BYTES": "1", "SPAR_VERBOSE": "1", "SPAR_NETWORK": distant}
    status, said, report = run(8, program, "exact", 1000, hosts=many, **verbose)
    expect(status == 0 and "1000 values: rabenseifner, by the network model" in said, f"distant hosts: {status} {said}")
    apart = [network[0], "1,1,1", network[2]]
    status, said, report = run(3, program, hosts=apart, SPAR_MIN_BYTES="1", SPAR_VERBOSE="1")
    expect(status == 0 and "flexreduce" not in said, f"a rank a host: {status} {said}")
nine = [network[0], ",".join("1" * 9), network[2]]
for least, hosts, how, algorithm in [
    (32 << 20, (), ["exact"], "automatic"),
    (1 << 20, network, ["exact"], "automatic"),
    (9 * 128 << 10, nine, ["exact"], "automatic"),
    (32 << 20, network, ["exact", "each host"], "automatic"),
    (64 << 10, (), ["lossy"], "ring+bf16"),
    (64 << 10, network, ["lossy"], "ring+bf16"),
    (1 << 20, network, ["exact", "integers"], "ring+bf16"),
]:
    if hosts and lacking.returncode != 0 or not full and (hosts is nine or algorithm != "automatic" and not hosts):
        continue
    # Each rank makes two calls with one value too few, which are passed on, and two calls with just enough.
    arguments = [how[0], f"{least // 4 - 1},{least // 4}", *how[1:]]
    ranks = 9 if hosts is nine else 3
    status, said, report = run(ranks, program, *arguments, hosts=hosts, SPAR_ALLREDUCE=algorithm)
    what = f"{algorithm} {arguments} on {ranks} ranks{', over hosts' if hosts else ''}"
    expect(status == 0 and report is not None, f"{what}: status {status}: {said[:500]}")
    calls = 2 * (ranks - 1 if "each host" in how else ranks)  # the library passes on all calls of a single rank
    reasons = {"short_vector": 2 * ranks}
    if "each host" in how:
        reasons = {"short_vector": 2 * (ranks - 1), "communicator": 4}
    right = report and report["calls"] == calls and passed(report, **reasons)
    expect(right, f"{what}: {report}: {said[:500]}")

# Each error in the settings is reported once, and the program runs without the library.
for variable, value, says in [
    ("SPAR_ALLREDUCE", "fastest", "unknown system 'fastest' at character 1 of 'fastest'; expected "),
    ("SPAR_ALLREDUCE", "ring+zip:3", "SPAR_ALLREDUCE=ring+zip:3: unknown part 'zip:3' at character 6"),
    ("SPAR_ALLREDUCE", "rabenseifner+bf16", "which rabenseifner cannot have"),
    ("SPAR_ALLREDUCE", "two_shot", "SPAR_ALLREDUCE=two_shot: the parts of 'two_shot' do not compose: "),
    ("SPAR_ALLREDUCE", "ok_topk:0.01", "expected automatic, rabenseifner, ring"),
    ("SPAR_ALLREDUCE", "ring+qsgd:4:bukket=64", "at character 13 of 'ring+qsgd:4:bukket=64'; expected bucket"),
    ("SPAR_MIN_BYTES", "many", "'many'"),
    ("SPAR_NETWORK", "/nowhere", "SPAR_NETWORK: cannot read /nowhere"),
]:
    status, said, report = run(2, program, "exact", 1000, SPAR_VERBOSE="1", **{variable: value})
    expect(status == 0 and report["calls"] == 0 and passed(report, invalid_setting=4), f"{variable}={value}: {report}")
    expect(said.count(says) == 1, f"{variable}={value}: said {said}")
    expect("4 calls passed to the MPI library (invalid_setting 4);" in said, f"{variable}={value}: said {said}")
status, said, report = run(2, program, "exact", 1000, SPAR_VERBOSE="1", SPAR_MIN_BYTES="1")
expect("is taken over from 1 bytes\n" in said and "calls taken over" in said, f"SPAR_VERBOSE=1: said {said}")
lossy = {"SPAR_VERBOSE": "1", "SPAR_MIN_BYTES": "1", "SPAR_ALLREDUCE": "automatic+bf16"}
status, said, report = run(2, program, "lossy", 1000, **lossy)
expect("s expected without compression" in said, f"automatic+bf16 does not say why: {said[:500]}")
expect("these times assume ranks on one host" in said, f"automatic+bf16 does not say what it assumes: {said[:900]}")
status, said, report = run(2, program, "exact", 1000, SPAR_VERBOSE="1", SPAR_REPORT="/nowhere/report.json")
expect(status == 0 and "cannot write" in said, f"a report that cannot be written: {status}: {said}")
limits = "from 1048576 bytes and 131072 bytes per rank, on one host from 33554432 bytes\n"
expect(limits in said, f"SPAR_VERBOSE=1 without SPAR_MIN_BYTES: said {said}")

# Fortran. MPICH's Fortran 2008 module bypasses the C functions, so the library takes over nothing there.
compiler = shutil.which(f"mpif90.{flavour}")
if compiler:
    for name in ["fortran", "fortran08"]:
        source, binary = ROOT / f"tests/preload/{name}_program.f90", work / name
        built = subprocess.run([compiler, "-w", "-o", binary, source], cwd=work, capture_output=True, text=True)
        expect(built.returncode == 0, f"{name}: {built.stderr}")
        status, said, report = run(3, binary, SPAR_MIN_BYTES="1")
        expect(status == 0 and said.count("0 failures") == 3, f"{name}: status {status}: {said}")
        calls = report["calls"] if report else 0
        expect((calls > 0) == (name == "fortran" or flavour == "openmpi"), f"{name}: {calls} calls")
else:
    print("skipped: no Fortran compiler")

# scripts/preload.
preload = ROOT / "scripts/preload"
for arguments, says in {
    "": "usage:",
    "--mpi lam -- true": "not lam",
    "--fast -- true": "no option --fast",
    "--report": "--report needs a value",
    "-- true": "no program in the command is linked",
}.items():
    done = subprocess.run([str(preload), *arguments.split()], capture_output=True, text=True)
    expect(done.returncode == 2 and says in done.stderr, f"preload {arguments}: {done.returncode} {done.stderr}")

report = work / "by_script.json"
launcher = shutil.which(f"mpiexec.{flavour}")
if launcher:
    more = ["--oversubscribe"] if flavour == "openmpi" else []
    command = [preload, "--algorithm", "ring+bf16", "--min-bytes", "1", "--report", report, "--"]
    done = subprocess.run([str(w) for w in [*command, launcher, "-n", 2, *more, program, "lossy"]],
                          capture_output=True, text=True)
    found = json.loads(report.read_text()) if report.exists() else {}
    expect(done.returncode == 0 and found.get("bytes_saved", 0) > 0, f"scripts/preload: {done} {found}")

if full and pathlib.Path("/usr/share/datasets/fashion-mnist").is_dir():
    rows = work / "rows.json"
    command = [ROOT / "scripts/train_preloaded", "--mpi", flavour, "--settings", "own,ring+bf16", "--ranks", 2,
               "--epochs", 1, "--images", 2000, "--test-images", 500, "--json", rows]
    done = subprocess.run([str(w) for w in command], capture_output=True, text=True)
    found = {row["system"]: row for row in json.loads(rows.read_text())} if rows.exists() else {}
    expect(done.returncode == 0 and set(found) == {"own", "ring+bf16"}, f"scripts/train_preloaded: {done}")
    for name, row in found.items():
        expect(row["history"][0]["accuracy"] > 0.3, f"{name}: {row['history']}")
        expect((row["report"] or {}).get("bytes_saved", 0) > 0 or name == "own", f"{name}: {row['report']}")

sys.exit(1 if failures else 0)
