# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the files of bench/results: JSON, and the tables that programs print. Times are in seconds."""

import functools
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "results"
UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

# A row of spar_perf's table: system, n, density, nnz in and out, messages, MB sent, x bound and bus GB/s (which older
# tables lack), time, (min .. max), ratio.
ROW = re.compile(r"(\S+) +(\d+) +(\S+) +(\d+) +(\d+) +(\S+) +(\S+)(?: +\S+ +\S+)? +([\d.]+ \w+) +\((.+?) \.\. (.+?)\)"
                 r" +(\S+)")


class missing(Exception):
    """The recorded results lack a row that a page shows."""


def seconds(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


@functools.cache
def text(name):
    return (FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def read_json(name):
    return json.loads(text(name))


@functools.cache
def rows(name, until=None):
    """The rows of spar_perf's tables in a file, up to a line; `heading` is the last line before the row that names a
    run: one that begins with = or with # and an option."""
    found, heading, ranks, iterations = [], "", None, None
    for line in text(name).split(until or "\0")[0].splitlines():
        if said := re.search(r"^[#=].*(?:--iterations|median of) (\d+)", line):
            iterations = int(said[1])
        if line.startswith("=") or line.startswith("# --"):
            heading = line.strip("=# ")
        elif said := re.match(r"# spar_perf: .* (\d+) ranks", line):
            ranks = int(said[1])
        elif row := ROW.match(line):
            system, n, density, _, _, _, _, time, low, high, ratio = row.groups()
            found.append({"heading": heading, "ranks": ranks, "iterations": iterations, "system": system, "n": int(n),
                          "density": float(density), "seconds": seconds(time), "low": seconds(low),
                          "high": seconds(high), "ratio": None if ratio == "-" else float(ratio)})
    return found


def select(found, **wanted):
    """The rows with these values; at least one."""
    matching = [r for r in found if all(r.get(key) == value for key, value in wanted.items())]
    if not matching:
        raise missing(f"no row with {wanted}")
    return matching


def only(found, **wanted):
    matching = select(found, **wanted)
    if len(matching) > 1:
        raise missing(f"{len(matching)} rows with {wanted}, expected one")
    return matching[0]


def overheads(name):
    """{bytes: medians} of bench/mpi_overhead: the exchange by hand, in seconds, and ratios."""
    form = re.compile(r" *(\d+) B +by hand +([\d.]+) us .*spar / by hand ([\d.]+).*MPI_Allreduce +([\d.]+) us"
                      r" +rabenseifner / MPI ([\d.]+).*ring / MPI ([\d.]+)")
    return {int(m[1]): {"by_hand": float(m[2]) * 1e-6, "doubling_to_hand": float(m[3]), "mpi": float(m[4]) * 1e-6,
                        "rabenseifner_to_mpi": float(m[5]), "ring_to_mpi": float(m[6])}
            for line in text(name).splitlines() if (m := form.match(line))}


@functools.cache
def preload():
    """[{library, hosts, bytes, ratio, low, high, after}] of bench/preload_overhead.py; `after` is the last remark."""
    found, run, after = [], {}, ""
    for line in text("preload_overhead.txt").splitlines():
        if head := re.match(r"# (openmpi|mpich), \d+ ranks,(?: hosts ([\d,]+), 1gbit,)? (\d+) pairs", line):
            run = {"library": head[1], "hosts": head[2], "pairs": int(head[3])}
        elif line.startswith("#") or line.startswith("then"):
            after = line.strip("# ")
        elif row := re.match(r" *(\d+)([KM]?) +([\d.]+) \(([\d.]+) \.\. ([\d.]+)\)", line):
            size = 4 * int(row[1]) * {"": 1, "K": 2**10, "M": 2**20}[row[2]]
            found.append({**run, "after": after, "bytes": size, "ratio": float(row[3]), "low": float(row[4]),
                          "high": float(row[5])})
    return found


@functools.cache
def hyperplane(name):
    """[{heading, delay, participation, steps_per_second, ratio, loss, fresh, stale}]"""
    found, heading = [], ""
    form = re.compile(r"(everyone|solo|majority|quorum:4) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+) ")
    for line in text(name).splitlines():
        if line.startswith("=="):
            heading = line
        elif row := form.match(line):
            delay = re.search(r"--delay (\d+)ms", heading)
            found.append({"heading": heading, "delay": int(delay[1]) * 1e-3, "participation": row[1],
                          "steps_per_second": float(row[2]), "ratio": float(row[3]), "loss": float(row[4]),
                          "fresh": float(row[5]), "stale": int(row[6])})
    return found


@functools.cache
def latencies():
    """{system: {mean, active}} of the runs with late ranks in late_ranks_quiet.txt."""
    form = re.compile(r"(eager_solo|eager_majority|mpi) +16384 +1 +([\d.]+ ms) .*\) +([\d.]+) +([\d.]+) ")
    return {m[1]: {"mean": seconds(m[2]), "active": float(m[4])}
            for line in text("late_ranks_quiet.txt").splitlines() if (m := form.match(line))}


@functools.cache
def predictions():
    """[{hosts, link, system, density, megabytes, measured, predicted}] of simulator_hosts.txt"""
    found = []
    form = re.compile(r"(\w+) +1?[16]M +(\S+) +([\d.]+) +([\d.]+ ms) +([\d.]+ ms) +([\d.]+)")
    for line in text("simulator_hosts.txt").splitlines():
        if head := re.match(r"== (\d) hosts, links of (\w+),", line):
            hosts, link = int(head[1]), head[2]
        elif row := form.match(line):
            found.append({"hosts": hosts, "link": link, "system": row[1], "density": float(row[2]),
                          "megabytes": float(row[3]), "measured": seconds(row[4]), "predicted": seconds(row[5]),
                          "ratio": float(row[6])})
    return found


@functools.cache
def simgrid():
    """[{platform, ranks, density, theirs, theirs_ahead, ours, ours_ahead}]: the fastest systems by both simulators."""
    found = []
    form = re.compile(r"(\S+) +(\w+) +([\d.]+)% +(\w+) +([\d.]+)%")
    for line in text("simulator_simgrid.txt").splitlines():
        if head := re.match(r"== (\S+), (\d+) ranks", line):
            platform, ranks = head[1], int(head[2])
        elif row := form.match(line):
            found.append({"platform": platform, "ranks": ranks, "density": float(row[1]), "theirs": row[2],
                          "theirs_ahead": float(row[3]), "ours": row[4], "ours_ahead": float(row[5])})
    return found


@functools.cache
def on_emulated_tree():
    """{system: seconds} of streams on emulated hosts of 2 and 3 ranks, from tree_sparse.txt"""
    form = re.compile(r"(\w+) +nnz_out +\d+ +root link +[\d.]+ MB +([\d.]+ ms)")
    emulated = text("tree_sparse.txt").split("# Emulated")[1]
    return {m[1]: seconds(m[2]) for line in emulated.splitlines() if (m := form.match(line))}


def gpu_part(name):
    """The lines of a part of gpu.txt."""
    found = text("gpu.txt").split(f"\n== {name}\n")
    if len(found) != 2:
        raise missing(f"no part '{name}' in gpu.txt")
    return found[1].split("\n== ")[0].splitlines()


def gpu_kernels():
    """For each kernel: milliseconds, GB/s, the fraction of a copy's bandwidth with its range, and the target."""
    row = re.compile(r"(\S.*?) +([\d.]+) +(\d+) +([\d.]+) \(([\d.]+) \.\. ([\d.]+)\) *([\d.]*)$")
    return [match.groups() for line in gpu_part("kernels beside a copy") if (match := row.match(line))]


def gpu_libraries():
    """For each kernel of Thrust or CUB: milliseconds, the ratio to spar's kernel with its range, and that kernel."""
    row = re.compile(r"(\S.*?) +([\d.]+) +([\d.]+) \(([\d.]+) \.\. ([\d.]+)\), target ([\d.]+): (.*)$")
    return [match.groups() for line in gpu_part("kernels beside a copy") if (match := row.match(line))]


def gpu_count():
    """The microseconds from a kernel by way of the host to the next kernel: the median, the least and the greatest."""
    row = re.compile(r"count to the host and back +([\d.]+) \(([\d.]+) \.\. ([\d.]+)\) us")
    return next(match.groups() for line in gpu_part("kernels beside a copy") if (match := row.match(line)))


def gpu_steps():
    """For the ring and Ok-Topk: milliseconds a step and of its kernels, the ratio to the least bytes, and counts."""
    return {line.split()[0]: line.split()[1:7] for line in gpu_part("a step of Ok-Topk")
            if re.match(r"(ring|Ok-Topk) +[\d.]+ +[\d.]+", line)}


def gpu_systems(part):
    """The time of each system in a table of spar_perf, as the program prints it."""
    row = re.compile(r"(\S+) +(?:(device|entries|staged) +)?\d+ .* ([\d.]+ \w+) +\((.+?) \.\. (.+?)\) ")
    return {match[1]: match.groups()[1:] for line in gpu_part(part) if (match := row.match(line))}
