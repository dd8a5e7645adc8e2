#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs scripts/netperf on two emulated hosts: usage, the JSON, several runs at once, and clean-up.

netperf_test.py openmpi|mpich|ucx
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def start(*arguments, mark=""):
    return subprocess.Popen(
        [SCRIPTS / "netperf", *arguments],
        env=dict(os.environ, SPAR_TEST_MARK=mark),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a background process
    )


def marked(mark, name=""):
    """Processes of a run, in any namespace."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            belongs = f"SPAR_TEST_MARK={mark}".encode() in (path / "environ").read_bytes()
            if belongs and name in (path / "comm").read_text():
                found.append(path.name)
        except OSError:  # the process has ended
            pass
    return found


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def surroundings():
    """The state that a run might leave behind, besides processes."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout.splitlines()
    names = sorted(line.split()[1] for line in links)
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    mounts = pathlib.Path("/proc/self/mounts").read_text()
    return names, spaces, mounts


# Errors in the arguments: one sentence, before anything is built.
for arguments, says in {
    "": "usage: scripts/netperf",
    "--hosts": "--hosts needs a value",
    "--hosts 2,0": "not '2,0'",
    "--hosts 1;1": "not '1;1'",
    f"--hosts {','.join('1' * 251)}": "at most 250 hosts",
    "--hosts 1,1 --link fast": "not 'fast'",
    "--hosts 1,1 --link 0mbit": "not '0mbit'",
    "--hosts 1,1 --mpi lam": "not lam",
    "--hosts 1,1 --ranks 2": "those of --hosts",
    "--hosts 1,1 --transport threads": "not threads",
    "--hosts 1,1 --transport ucx --mpi mpich": "omit --mpi mpich",
}.items():
    run = start(*arguments.split())
    out, err = run.communicate(timeout=30)
    expect(run.returncode == 2, f"{arguments}: status {run.returncode}, not 2: {err}")
    expect(says in err and len(err.strip().splitlines()) == 1, f"{arguments}: does not say '{says}' but {err}")

probe = subprocess.run([SCRIPTS / "hosts", "1,1", "1gbit", "true"], capture_output=True, text=True, timeout=30)
if probe.returncode == 77:
    print("skipped:", probe.stderr.strip())
    sys.exit(1 if failures else 77)

before = surroundings()
by = ["--transport", "ucx"] if sys.argv[1] == "ucx" else ["--mpi", sys.argv[1]]
by += ["--type", "int32"]  # by spar_perf, which the tests have built; spar_perf_float is another program
systems = {"ring", "flexreduce"} | ({"mpi"} if "--mpi" in by else set())
common = [*by, "--systems", ",".join(sorted(systems)), "--density", "1"]

# Packets have one size, and a smaller size on slow links.
for link, frames in ("49mbit", 16), ("50mbit", 44):
    show = "ip -d link show eth0; cat /proc/sys/net/ipv4/tcp_min_tso_segs"
    command = [SCRIPTS / "hosts", "1,1", link, "sh", "-c", show]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30)
    same = f"gso_max_segs {frames} " in shown.stdout and shown.stdout.endswith(f"\n{frames}\n")
    expect(shown.returncode == 0 and same, f"{link}: {shown.stdout}{shown.stderr}")

# Two runs at once, with different hosts and links.
with tempfile.TemporaryDirectory() as directory:
    mark = str(uuid.uuid4())
    runs = {}
    for hosts, link in ("1,1", "1gbit"), ("2,1", "100mbit"):
        path = pathlib.Path(directory) / f"{link}.json"
        measured = f"--hosts {hosts} --link {link} --count 250000 --iterations 3 --warmup 1 --check --json {path}"
        runs[path, link, hosts] = start(*common, *measured.split(), mark=mark)
    for (path, link, hosts), run in runs.items():
        out, err = run.communicate(timeout=400)
        expect(run.returncode == 0, f"status {run.returncode}: {out}{err}")
        rows = {row["system"]: row for row in json.loads(path.read_text() or "[]")} if path.exists() else {}
        expect(set(rows) == systems, f"rows of {set(rows)}")
        over_the_root = rows.get("flexreduce", {}).get("root_link_bytes")  # 250000 values in each direction
        expect(over_the_root == 1e6, f"the tree is not that of hosts {hosts}: {over_the_root} bytes")
        for row in rows.values():
            expect(row["correct"] is True and row["ranks"] == sum(map(int, hosts.split(","))), f"wrong: {row}")
            # A million bytes or more cross the link in each direction; the token bucket's initial fill is less than a
            # tenth.
            least = 1e6 * 8 / {"1gbit": 1e9, "100mbit": 1e8}[link]
            expect(row["seconds"] > 0.9 * least, f"{row['seconds']} s is faster than {link}")
    expect(until(lambda: not marked(mark), 5), f"processes stay behind: {marked(mark)}")

# The exit status is the program's.
run = start("--hosts", "1,1", *by, "--systems", "none")
out, err = run.communicate(timeout=400)
expect(run.returncode == 2 and "none" in err, f"a wrong option of spar_perf: status {run.returncode}, {err}")

# A run that is terminated or killed takes everything with it.
for how in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
    mark = str(uuid.uuid4())
    run = start(*common, *"--hosts 1,1 --count 1M --iterations 100000".split(), mark=mark)
    try:
        expect(until(lambda: len(marked(mark, "spar_perf")) == 2, 30), f"two ranks do not start: {run.poll()}")
        run.send_signal(how)
        run.communicate(timeout=10)
        expect(run.returncode == -how, f"status {run.returncode} after {how.name}")
        expect(until(lambda: not marked(mark), 5), f"processes stay behind after {how.name}: {marked(mark)}")
    finally:
        run.kill()

expect(surroundings() == before, f"something stays behind: {before} has become {surroundings()}")
sys.exit(1 if failures else 0)
