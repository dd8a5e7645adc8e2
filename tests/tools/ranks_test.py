#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts small programs by scripts/ranks: variables, output, exit status, failing ranks and signals."""

import os
import pathlib
import signal
import subprocess
import sys
import time

RANKS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "ranks"
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def run(size, program, *flags, **options):
    """Runs a program in Python, which knows its rank, on `size` ranks."""
    return subprocess.run(command(size, program, *flags), capture_output=True, text=True, timeout=60, **options)


def command(size, program, *flags):
    return [RANKS, *flags, str(size), sys.executable, "-c", "import os, signal, socket, sys, time\n"
            "rank = int(os.environ['RANK'])\n" + program]


def alive(pid):
    try:
        os.kill(pid, 0)
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


for wrong in [], ["4"], ["0", "true"], ["-1", "true"], ["x", "true"], ["--keep-going"], ["--keep-going", "4"]:
    done = subprocess.run([RANKS, *wrong], capture_output=True, text=True)
    expect(done.returncode == 2 and done.stderr.startswith("usage: "), f"{wrong}: {done}")
done = subprocess.run([RANKS, "2", "./no-such-program"], capture_output=True, text=True)
expect(done.returncode == 127 and "./no-such-program: No such file" in done.stderr, f"no such program: {done}")
done = subprocess.run([RANKS, "2", "/etc/passwd"], capture_output=True, text=True)
expect(done.returncode == 126 and "Permission denied" in done.stderr, f"not a program: {done}")

NAMES = "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SPAR_JOB", "SPAR_SECRET"
show = f"print(rank, os.environ['LOCAL_RANK'], *(os.environ.get(name) for name in {NAMES}))"
for size in 1, 3, 5:
    done = run(size, show, env=os.environ | {"SPAR_PORT": "1", "RANK": "7"})
    expect(done.returncode == 0 and not done.stderr, f"variables: {done}")
    lines = sorted(done.stdout.splitlines())
    expect([line.split()[:2] for line in lines] == [[str(r)] * 2 for r in range(size)], f"ranks of {size}: {lines}")
    values = {tuple(line.split()[2:]) for line in lines}
    expect(len(values) == 1, f"values that differ: {values}")
    expect(next(iter(values))[:3] == (str(size), str(size), "127.0.0.1"), f"sizes and address: {values}")
jobs = {run(1, "print(os.environ['SPAR_JOB'], os.environ.get('SPAR_SECRET'))").stdout for _ in range(2)}
expect(len(jobs) == 2, f"two jobs have the same identity and secret: {jobs}")
expect(run(2, "print('SPAR_PORT' in os.environ)", env=os.environ | {"SPAR_PORT": "1"}).stdout == "False\n" * 2,
       "another job's SPAR_PORT is passed on")

# On emulated hosts.
probe = subprocess.run([RANKS.parent / "hosts", "1,1", "1gbit", "true"], capture_output=True, text=True, timeout=30)
if probe.returncode == 0:
    show = ("print(rank, os.environ['LOCAL_RANK'], os.environ['LOCAL_WORLD_SIZE'], os.environ['MASTER_ADDR'], "
            "os.environ['SPAR_INTERFACE'], socket.gethostname(), *sys.argv[1:])")
    for size in 3, 4:
        done = subprocess.run([RANKS.parent / "hosts", "2,1", "1gbit", *command(size, show), "a  b", "c'd"],
                              capture_output=True, text=True, timeout=60)
        if size == 4:
            expect(done.returncode == 2 and "does not have 4 ranks" in done.stderr, f"hosts with 3 ranks: {done}")
            continue
        places = "0 0 2 10.77.0.1 eth0 host1", "1 1 2 10.77.0.1 eth0 host1", "2 0 1 10.77.0.1 eth0 host2"
        expect(sorted(done.stdout.splitlines()) == [f"{place} a  b c'd" for place in places], f"on hosts: {done}")
else:
    print("not on emulated hosts:", probe.stderr.strip())

listen = """
if rank == 0:
    for distance in 0, 101:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", int(os.environ["MASTER_PORT"]) + distance))
        one.listen()
"""
done = run(2, listen)
expect(done.returncode == 0, f"rank 0 cannot listen: {done}")

write = "sys.stdout.write(str(rank)); sys.stdout.write('x' * 200 + '\\n'); sys.stdout.flush()"
done = run(4, "for i in range(300): " + write)
expect(sorted(done.stdout.splitlines()) == sorted(f"{r}{'x' * 200}" for r in range(4) for _ in range(300)),
       "lines are mixed or lost")
done = run(3, "sys.stdout.write(f'no newline {rank}'); sys.stderr.write(f'error {rank}')")
expect(sorted(done.stdout.splitlines()) == [f"no newline {r}" for r in range(3)], f"last lines: {done.stdout}")
expect(sorted(done.stderr.splitlines()) == [f"error {r}" for r in range(3)], f"errors: {done.stderr}")
done = run(2, "sys.stdout.write(str(rank) * 1000000)")
expect(sorted(done.stdout.replace("\n", "")) == ["0"] * 1000000 + ["1"] * 1000000, "long lines are not whole")
done = run(3, "print(rank, repr(sys.stdin.read()))", input="input")
expect(sorted(done.stdout.splitlines()) == ["0 'input'", "1 ''", "2 ''"], f"input: {done.stdout}")

begin = time.monotonic()
done = run(3, "if rank == 1: sys.exit(3)\ntime.sleep(50)")
expect(done.returncode == 3, f"a rank that fails: status {done.returncode}, not 3")
expect(done.stderr == "scripts/ranks: rank 1 failed with status 3; the others have 5 s to end\n", f"its report: {done}")
expect(4 < time.monotonic() - begin < 20, f"the others were ended after {time.monotonic() - begin:.1f} s")
begin = time.monotonic()
done = run(3, "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(1)\nprint(rank)\nif rank: sys.exit(4)")
expect(done.returncode == 128 + signal.SIGKILL, f"a rank that is killed: status {done.returncode}")
expect(sorted(done.stdout.split()) == ["0", "2"], f"the others had no time to end: {done}")
expect(time.monotonic() - begin < 5, "the others ended, but were awaited")
kill = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(8)\nprint(rank)"
done = run(3, kill, "--keep-going")
expect(sorted(done.stdout.split()) == ["0", "2"], f"ranks that go on were ended: {done}")
expect(done.stderr == "scripts/ranks: rank 1 was ended by signal 9 (Killed); the others go on\n", f"its report: {done}")
expect(done.returncode == 128 + signal.SIGKILL, f"a lost rank: status {done.returncode}")
stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif rank == 0: sys.exit(5)\ntime.sleep(50)"
expect(run(2, stubborn).returncode == 5, "a rank that ignores SIGTERM")

noted = """
def note(number, frame):
    print(rank, number, flush=True)
    if number == signal.SIGTERM: sys.exit(0)
for number in signal.SIGUSR1, signal.SIGTERM: signal.signal(number, note)
print("ready", flush=True)
while True: time.sleep(0.1)
"""
job = subprocess.Popen(command(2, noted), stdout=subprocess.PIPE, text=True)
expect([job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2, "ranks do not start")
for number in signal.SIGUSR1, signal.SIGTERM:
    job.send_signal(number)
    got = sorted(job.stdout.readline() for _ in range(2))
    expect(got == [f"{r} {number}\n" for r in range(2)], f"signal {number} on ranks: {got}")
job.stdout.close()
expect(job.wait(30) == 128 + signal.SIGTERM, f"status after SIGTERM: {job.returncode}")

job = subprocess.Popen(command(2, "print(os.getpid(), flush=True)\ntime.sleep(50)"), stdout=subprocess.PIPE, text=True)
pids = [int(job.stdout.readline()) for _ in range(2)]
job.kill()
job.wait()
until = time.monotonic() + 10
while any(map(alive, pids)) and time.monotonic() < until:
    time.sleep(0.05)
expect(not any(map(alive, pids)), "ranks outlive a launcher that is killed")

sys.exit(1 if failures else 0)
