# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/speed.md."""

import statistics

import raw
from raw import only, rows, select
from values import MI, VALUES, between, number, table, value

LIBRARIES = {"openmpi": "Open MPI", "mpich": "MPICH"}


def slower(text):
    """Bold if the first number, a ratio, says that spar is slower."""
    return f"**{text}**" if float(text.split()[0]) > 1 else text


def overhead(library, size, key):
    return raw.overheads(f"mpi_overhead_{library}.txt")[size][key]


def small_call(library):
    """Recursive doubling of 8 bytes relative to MPI_Allreduce, with two digits like its factors."""
    o = raw.overheads(f"mpi_overhead_{library}.txt")[8]
    return f"{o['by_hand'] * o['doubling_to_hand'] / o['mpi']:.2g}"


def perf_ratio(library, **wanted):
    return only(rows(f"perf_{library}.txt"), **wanted)["ratio"]


def in_place(ranks, density):
    """The ratio of dense values in place that the selector `nonzeros` moves to a stream."""
    return lambda lib: only(rows(f"in_place_{lib}.txt"), system="nonzeros", ranks=ranks, density=density)["ratio"]


@value
def speed():
    network = lambda library, **wanted: only(rows(f"netperf_{library}.txt"), **wanted)["ratio"]
    drift = dict(zip(LIBRARIES, select(rows("netperf_drift_8_hosts.txt"), system="ok_topk")))
    own = lambda library, n: [r["ratio"] for r in select(rows(f"ok_topk_{library}.txt"), system="ok_topk", n=n)]
    lines = {
        "sparse, density 0.1 %, 2 ranks on one host": lambda lib: perf_ratio(lib, system="sparcml", density=0.001),
        "sparse, density 1 %, 2 ranks on one host": lambda lib: perf_ratio(lib, system="sparcml", density=0.01),
        "sparse, density 30 %, 2 ranks on one host": lambda lib: perf_ratio(lib, system="sparcml", density=0.3),
        **{f"in place with `nonzeros`, density {100 * d:.3g} %, {p} ranks on one host, doubles": in_place(p, d)
           for p in (2, 4) for d in (0.003, 0.022, 0.17, 0.45)},
        "sparse, density 0.1 %, 8 hosts, n = 16 Mi": lambda lib: network(lib, system="sparcml", density=0.001),
        "sparse, density 0.78 %, 8 hosts, n = 16 Mi": lambda lib: network(lib, system="sparcml", density=0.0078),
        "Ok-Topk with k = 1 % and the selection, 8 hosts, n = 16 Mi": lambda lib: drift[lib]["ratio"],
        "the same, 2 ranks on one host, n = 16 Mi": lambda lib: own(lib, 16 * MI),
        "the same, 2 ranks on one host, n = 10^6": lambda lib: own(lib, 10**6),
        "dense 64 MiB by `ring`, 2 ranks on one host": lambda lib: overhead(lib, 64 * MI, "ring_to_mpi"),
        "dense 4 MiB by `ring`, 4 hosts": lambda lib: network(lib, system="ring", ranks=4),
        "dense 4 MiB by `ring`, 2 hosts": lambda lib: network(lib, system="ring", ranks=2),
        "dense 4 MB by default, 2 ranks on one host":
            lambda lib: [r["ratio"] for r in select(rows(f"perf_{lib}.txt"), system="dense")],
        "dense 1 MiB by `ring`, 2 ranks on one host": lambda lib: overhead(lib, MI, "ring_to_mpi"),
        "dense 8 bytes by `recursive_doubling`, 2 ranks on one host": small_call,
    }
    cells = []
    for name, find in lines.items():
        found = [find(library) for library in LIBRARIES]
        texts = [f if isinstance(f, str) else between(f) if isinstance(f, list) else number(f) for f in found]
        cells.append([name, *map(slower, texts)])
    return table(["", "Open MPI 4.1.4", "MPICH 4.0.2"], cells)


@value
def speed_readme():
    """The rows of `speed` that show where spar is fast, and where it is slow."""
    head, rule, *lines = speed().strip().split("\n")
    shown = ["0.1 %, 2 ranks", "density 1 %", "30 %", "0.3 %, 2", "2.2 %, 2", "17 %, 2", "2.2 %, 4", "Ok-Topk",
             "64 MiB", "ring`, 4 hosts", "1 MiB", "8 bytes"]
    return "\n\n" + "\n".join([head, rule, *(l for l in lines if any(s in l for s in shown))]) + "\n\n"


TRANSPORT_CASES = {
    "small": "8 bytes, `recursive_doubling`, 2 ranks on one host",
    "sparse": "10,000 of 10^6 entries, `recursive_doubling`, 2 ranks on one host",
    "long": "dense 64 MiB, `ring`, 2 ranks on one host",
    "hosts": "dense 4 MiB, `ring`, 4 hosts",
}


def quartiles(found):
    """The median of some measurements, and between which numbers the middle half of them is."""
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return f"{number(middle)} ({number(low)} to {number(high)})"


def transport_times(case):
    """The seconds of each round of a case, by transport and whether spar or MPI_Allreduce took them."""
    found = {}
    for row in raw.read_json("transports.json"):
        if row["case"] == case:
            found.setdefault((row["transport"], row["system"] == "mpi"), []).append(row["seconds"])
    return found


def time_text(seconds):
    """A time with two digits."""
    unit, scale = ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{seconds * scale:#.2g}".rstrip(".") + f" {unit}"


@value
def speed_transports():
    lines = []
    for case, name in TRANSPORT_CASES.items():
        times = transport_times(case)
        ucx = times["ucx", False]
        ratios = [slower(quartiles([a / b for a, b in zip(ucx, times[library, is_mpi])]))
                  if case != "sparse" or not is_mpi else ""
                  for library in LIBRARIES for is_mpi in (False, True)]
        lines.append([name, time_text(statistics.median(ucx)), *ratios])
    return table(["", "over UCX", "to spar over Open MPI", "to its MPI_Allreduce", "to spar over MPICH",
                  "to its MPI_Allreduce"], lines)


@value
def speed_topk():
    first = select(rows("netperf_drift_8_hosts.txt"), system="ok_topk")
    return " and ".join(f"{1e3 * r['seconds']:.0f} ms" for r in first)


def one_host():
    heading = "one host, 2 ranks: --network, --systems sparcml,allgather,dsar_qsgd8,dsar_qsgd2,dense,mpi"
    return select(rows("choice_openmpi.txt"), heading=heading)


VALUES |= {
    "speed_sparse": lambda: number(perf_ratio("openmpi", system="sparcml", density=0.01)),
    "speed_sparse_libraries":
        lambda: " and ".join(number(perf_ratio(library, system="sparcml", density=0.01)) for library in LIBRARIES),
    "speed_small_vector": lambda: number(overhead("openmpi", MI, "ring_to_mpi")),
    "speed_small_call": lambda: small_call("openmpi"),
    "speed_rounding_one_host": lambda: between([r["ratio"] for r in one_host() if r["system"] == "dsar_qsgd8"]),
    "speed_rounding_hosts":
        lambda: between([r["ratio"] for r in rows("choosing_4_hosts.txt") if r["system"] == "dsar_qsgd8"]),
}
