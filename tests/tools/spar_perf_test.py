#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs spar_perf through the command line: exit status, table, and the keys and figures of the JSON.

spar_perf_test.py PROGRAM [COMMAND THAT LAUNCHES IT ...]
"""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

KEYS = """system transport ranks n density type pattern nnz_in nnz_out messages words_sent words_received header_bytes
compressions decompressions codec_seconds words_sent_mean words_received_mean seconds seconds_min seconds_max
ratio_to_mpi alpha beta gamma_sparse gamma_dense gamma_coded alpha_shared bits_index bits_value max_error mean_error
rms_error error_bound correct input nnz_out_mean select_seconds epsilon tau tau_prime skew delay latency_mean nap_mean
nap_min stale_max format times algbw busbw compared_to against_reference against_before machine words_bound
phases memory""".split()

program = sys.argv[1]
full = "SPAR_FULL" in os.environ # the quick set compiles spar_perf with float, int32 and 32-bit indices only
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def run(*arguments, status=0, says=""):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100)
    line = " ".join(arguments)
    expect(done.returncode == status, f"{line}: status {done.returncode}, not {status}: {done.stderr}")
    expect(says in done.stdout + done.stderr, f"{line}: does not say '{says}' but {done.stdout}{done.stderr}")
    if status == 2:
        expect(len(done.stderr.strip().splitlines()) == 1, f"{line}: not one sentence: {done.stderr}")


def rows(*arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        run(*arguments, "--json", str(path))
        return {(r["system"], r["density"]): r for r in json.loads(path.read_text())}


# Errors in the arguments.
run("--help", says="--pattern")
run("--list", says="zipf")
run("--list", says="quorum:Q")
for arguments, says in {
    "--bogus": "--bogus",
    "--count 0": "--count must be at least 1",
    "--count 16X": "not '16X'",
    "--count 5G": "add --index 64",
    "--density 1.5": "from 0 to 1",
    "--type complex": "not 'complex'",
    "--pattern random": "not 'random'",
    "--iterations 0": "--iterations",
    "--ranks 0": "--ranks",
    "--systems fast": "mpi, and the partial systems eager_solo eager_majority quorum:Q everyone (--list",
    "--systems sparcml,fast": "unknown system 'fast' at character 1 of 'fast'; expected sparcml",
    "--systems ok_topc": "expected ok_topk, sparcml",
    "--systems select=exact_topk,by=rings": "unknown part 'rings' at character 22 of 'select=exact_topk,by=rings'; "
                                            "expected ring",
    "--systems by=ring,by=rings": "at character 4 of 'by=rings'; expected ring",
    "--systems ok_topk:perod=3": "'perod=3' of ok_topk at character 9 of 'ok_topk:perod=3'; expected period",
    "--systems ok_topk+half": "has nothing to encode",
    "--systems ring,ring": "twice; to measure a system twice, name it: again=ring",
    "--systems =ring": "SYSTEM or NAME=SYSTEM",
    "--systems mine=": "SYSTEM or NAME=SYSTEM, not 'mine='",
    "--k 3": "not expected: --k 3",
    "--systems mine=fast": "unknown system 'fast'",
    "--against /nonexistent/rows.json": "/nonexistent/rows.json cannot be read",
    "--against /dev/zero": "/dev/zero has no rows",
    "--network /dev/zero": "/dev/zero has a zero byte; expected a text",
    "--network /": "cannot read /: ",
    "--systems flexreduce --topology /dev/zero": "/dev/zero has a zero byte; expected a text",
    "--systems flexreduce --topology /": "cannot read /: ",
    **{f"{option} {number}": f"'{number}'" for number in ["nan", "inf", "-inf", "-1", "1e999"] for option in
       ["--count", "--density", "--epsilon", "--tau", "--tau-prime", "--iterations", "--warmup", "--ranks",
        "--skew one --delay"] + ["--transport sim --" + of_network for of_network in
                                 ["latency", "overhead", "bandwidth", "compute", "cores", "jitter", "ranks-per-host"]]},
    "--type int32 --systems dsar_qsgd4": "for int32",
    "--latency 1us": "--transport sim",
    "--transport sim --latency 1": "--latency must be a number like 1us",
    "--transport sim --bandwidth 0": "above 0",
    "--pattern disjoint --density 0.4 --ranks 3": "3 ranks * 419430 entries",
    "--json /nonexistent/rows.json": "cannot write --json",
    "--calibrate /nonexistent/network": "cannot write --calibrate",
    "--network /nonexistent/network": "cannot read /nonexistent/network",
    "--network x --calibrate y": "--calibrate and --network exclude each other",
    "--network x --transport sim --latency 1us": "--latency is given by the --network file",
    "--transport sim --cores -1": "--cores",
    "--systems flexreduce --topology /nonexistent/tree": "--topology: cannot read /nonexistent/tree",
    "--cores 1": "--transport sim",
    "--pattern drift --input sparse": "--input dense",
    "--pattern gaussian --warmup 1": "gaussian measures every call",
    "--pattern heavy_50 --type int32": "heavy_50 needs a floating-point type, not int32",
    "--input both": "not 'both'",
    "--memory gpu": "not 'gpu'",
    "--memory device --input sparse": "use --input dense",
    "--memory device --transport sim": "use --transport threads or mpi, not sim",
    "--memory device --phases": "--memory device has no --phases",
    "--memory device --skew one": "--memory device has no --skew",
    "--epsilon -1": "--epsilon must be a number from 0 to 1",
    "--tau 0": "--tau",
    "--tau-prime 0": "--tau-prime",
    "--calibrate /dev/null --ranks 1": "at least two ranks",
    "--tau some": "unless unlimited, must be a whole number of at least 1, not 'some'",
    "--skew sideways": "--skew must be one of none linear one random, not 'sideways'",
    "--skew one --delay 1": "--delay must be a number like",
    "--delay 1ms": "--delay applies to late ranks: add --skew",
    "--systems quorum": "invalid quorum 'quorum': expected a name like quorum:3",
    "--systems quorum:x+ring": "invalid quorum 'quorum:x': expected a name like quorum:3",
    "--systems quorum:0": "a quorum must be from 1 to 2, the number of ranks",
    "--transport sim --ranks 4 --systems quorum:5+ring": "a quorum must be from 1 to 4",
    "--systems eager_solo+fast": "eager_solo+fast: unknown system 'fast' at character 1 of 'fast'; expected sparcml",
    "--systems everyone+": "everyone+: unknown system ''",
    "--systems ring+sparcml": "unknown part 'sparcml' at character 6 of 'ring+sparcml'",
    "--systems ring+qsgd:3": "unknown part 'qsgd:3' at character 6 of 'ring+qsgd:3'",
    "--systems ring+bound:0": "'0' at character 12 of 'ring+bound:0'; expected a positive, finite number",
    "--systems ring+bound:x": "unknown option 'x' of bound at character 12 of 'ring+bound:x'",
    "--systems ring+bound:0.1+p2p": "+p2p is only for codecs of messages",
    "--systems flexreduce+bf16+p2p": "+p2p is only for ring and rec_doubling",
}.items():
    run(*arguments.split(), status=2, says=says)
run("--systems", "", status=2, says="not ''")
run("--systems", "ring, fast", status=2, says="unknown system 'fast'")
# The list, which needs no compiled system, names those that are compiled.
listed = subprocess.run([program, "--list"], capture_output=True, text=True).stdout.splitlines()[0].split()[1:]
run(*"--transport sim --count 100 --density 0.1 --systems".split(), ", ".join(listed), says="tree_ok_topk")
if full:
    run(*"--type half --ranks 513 --check".split(), status=2, says="at most 512 ranks")
    run(*"--type half --systems topka".split(), status=2, says="for half")
run("--transport", "mpi", status=77, says="without MPI")
run("--memory", "device", status=77, says="install NVIDIA's CUDA toolkit")
run("--systems", "mpi", status=77, says="--transport mpi")
run(*"--systems eager_solo --type int32".split(), status=77, says="for float with 32-bit indices, not for eager_solo")

# Every system on threads, sparse and dense.
every = "sparcml,ssar_split,dsar_split,rec_doubling,ring,rabenseifner,allgather,dense,dsar_qsgd8,dsar_qsgd4,dsar_qsgd2"
found = rows(*f"--systems {every} --count 5000 --density 0.01,1 --ranks 3 --iterations 2 --warmup 1 --check".split())
expect(len(found) == 2 * 11, f"{len(found)} rows instead of 22")
for (system, density), r in found.items():
    expect(set(KEYS) <= set(r), f"{system} lacks {set(KEYS) - set(r)}")
    expect(r["correct"] is True, f"{system} at {density} is wrong by {r['max_error']}, bound {r['error_bound']}")
    expect((r["error_bound"] > 0) == ("qsgd" in system), f"{system} has the bound {r['error_bound']}")
    expect(r["ratio_to_mpi"] is None, f"{system} has a ratio without MPI")
    expect(0 < r["seconds_min"] <= r["seconds"] <= r["seconds_max"], f"{system} has no times")
    expect(r["nnz_in"] == 5000 * density, f"{system} has {r['nnz_in']} entries at {density}")

# Names of systems, verdicts, and comparison with an earlier run.
with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "before.json"
    exact = "--transport sim --ranks 4 --count 5000 --density 1 --systems"
    run(*exact.split(), "ring,again=ring,mine=rec_doubling", "--json", str(path))
    before = {r["system"]: r for r in json.loads(path.read_text())}
    expect(list(before) == ["ring", "again", "mine"], f"names: {list(before)}")
    for system, expected in [("ring", "cannot tell"), ("again", "cannot tell"), ("mine", "slower")]:
        x = before[system]
        expect(x["compared_to"] == "ring" and x["against_reference"]["verdict"] == expected, f"{system}: {x}")
        expect(x["against_before"] is None and x["times"] == [x["seconds"]], f"{system}: {x}")
        expect(math.isclose(x["algbw"], 20000 / x["seconds"]) and math.isclose(x["busbw"], 1.5 * x["algbw"]),
               f"bandwidths of {system}: {x}")
        expect(x["machine"]["cores"] >= 1 and x["machine"]["compiler"], f"machine: {x['machine']}")
    ratio = before["mine"]["seconds"] / before["ring"]["seconds"]
    expect(math.isclose(before["mine"]["against_reference"]["ratio"], ratio), f"ratio: {before['mine']}")
    # The systems change places, so each differs from its namesake in the earlier run.
    run(*exact.split(), "mine=ring,ring=rec_doubling,new=ring", "--against", str(path), says="no such row")
    r = {x["system"]: x["against_before"] for x in
         rows(*exact.split(), "mine=ring,ring=rec_doubling,new=ring", "--against", str(path)).values()}
    expect(r["mine"]["verdict"] == "faster" and math.isclose(r["mine"]["ratio"], 1 / ratio), f"against: {r}")
    expect(r["ring"]["verdict"] == "slower" and math.isclose(r["ring"]["ratio"], ratio), f"against: {r}")
    expect(r["new"] is None, f"against: {r}")
    for content, says in [("[]", "has no rows"), ("{", "has no rows"), ('[{"system": "ring"}]', "its format is none"),
                          ('[{"format": 1}]', "its format is 1; expected 2"), ('[3]', "its format is none"),
                          ('[{"format": 2, "machine": {}, "times": [null]}]', "invalid times"),
                          ("[" * 200000, "nested more than 100 deep")]:
        path.write_text(content)
        run("--against", str(path), "--ranks", "2", status=2, says=says)
run("--against", "/tmp", status=2, says="/tmp ")
run(*"--against x --skew one".split(), status=2, says="omit --skew")
# The least payload: that of a dense ring and of recursive doubling between two ranks is what they send; the sum of
# streams with different indices needs less.
found = rows(*"--ranks 2 --count 20K --density 0.01 --iterations 1 --pattern disjoint".split(), "--systems",
             "dense,rec_doubling,topka", "--transport", "sim")
for system in ["dense", "rec_doubling"]:
    row = found[system, 0.01]
    expect(abs(row["words_sent_mean"] / row["words_bound"] - 1) < 0.01, f"{system}: {row['words_bound']} words")
row = found["topka", 0.01]
expect(abs(row["words_bound"] - 2 * row["nnz_out"] / 2) < 1e-6, f"topka: a bound of {row['words_bound']} words")
row = rows(*"--ranks 5 --count 20K --density 0.01 --iterations 1 --transport sim --systems sparcml".split())[
    "sparcml", 0.01]
expect(abs(row["words_bound"] - 2 * (row["nnz_in"] + row["nnz_out"] * 3 / 5)) < 1e-6, f"sparcml: {row['words_bound']}")

# The overhead of each of the seven messages that a rank sends one after the other.
without, more = (rows(*"--transport sim --latency 10us --ranks 5 --count 1K --systems ssar_split --overhead".split(), o)
                 ["ssar_split", 0.01] for o in ("0us", "5us"))
expect(abs(more["seconds"] - without["seconds"] - 7 * 5e-6) < 1e-12, f"{without['seconds']} s, {more['seconds']} s")
expect(abs(more["alpha"] - 15e-6) < 1e-15, f"alpha {more['alpha']}")

# Phases and timelines: in the simulator, the phases of a call without codec add up to its time.
with tempfile.TemporaryDirectory() as directory:
    arguments = f"--phases --trace {directory}/made/here --ranks 4 --count 20K --density 0.05 --iterations 3 --check"
    simulated = "--transport sim --latency 10us --compute 2ns"
    for transport in ["--transport threads", simulated, simulated + " --skew one", "--transport threads --skew one"]:
        found = rows(*arguments.split(), *transport.split(), "--systems", "sparcml,ok_topk,eager_solo,dense+qsgd:8")
        for (system, _), row in found.items():
            what = f"{system} {transport}: {row['phases']}"
            expect(list(row["phases"]) == ["select", "encode", "wait", "merge", "other"], what)
            expect(all(x >= 0 for x in row["phases"].values()), what)
            expect(row["phases"]["wait"] > 0 and row["correct"] is True, what)
            expect(len(row["times"]) in (1, 3), f"{system} {transport}: {row['times']}")
            events = json.loads(pathlib.Path(f"{directory}/made/here/{system}.json").read_text())
            expect({e["pid"] for e in events} == {0, 1, 2, 3}, f"{what}: ranks {({e['pid'] for e in events})}")
            ends = {kind: sorted(e["id"] for e in events if e["ph"] == kind) for kind in "sf"}
            expect(ends["s"], f"{what}: no message")
            # A partial system has messages of earlier and later rounds in flight.
            expect(ends["s"] == ends["f"] or system == "eager_solo", f"{what}: {len(ends['s'])} messages")
    row = rows(*arguments.split(), *simulated.split(), "--systems", "sparcml")["sparcml", 0.05]
    expect(row["phases"]["merge"] > 0 and row["phases"]["encode"] == 0, f"sparcml: {row['phases']}")
    expect(sum(row["phases"].values()) < 1.0001 * row["seconds"], f"{row['phases']} in {row['seconds']} s")
    # A selection takes no virtual time; its processor time is not mixed with virtual times.
    dense = rows(*arguments.split(), *simulated.split(), *"--input dense --systems sparcml,eager_solo".split())
    expect(all(row["phases"]["select"] == 0 for row in dense.values()), f"{[r['phases'] for r in dense.values()]}")
    several = rows(*"--trace".split(), directory, *"--ranks 2 --count 1K --density 0.1,0.5 --systems ring".split())
    expect(all(row["phases"] is not None for row in several.values()), "phases come with a trace")
    expect({p.name for p in pathlib.Path(directory).glob("*.json")} == {"ring-0.1.json", "ring-0.5.json"}, "timelines")
run("--trace", "/dev/null/folder", status=2, says="cannot make the folder --trace /dev/null/folder")
expect(rows(*"--ranks 2 --count 1K --systems ring".split())["ring", 0.01]["phases"] is None, "phases without --phases")

# An interrupted run keeps the iterations that have ended.
def interrupted(*arguments):
    """The rows and the table of a run that gets SIGINT after a second."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        command = [program, *arguments, "--iterations", "1000000", "--json", str(path)]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            running.wait(1.5)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=60)
        expect(running.returncode == 130 and "interrupted" in errors, f"{arguments}: {running.returncode}: {errors}")
        kept = json.loads(path.read_text())
    expect(all(0 < r["iterations"] < 1000000 for r in kept), f"{arguments}: iterations of {kept}")
    return kept, output


kept, output = interrupted(*"--ranks 2 --count 1M --density 0.01,0.1".split())
expect({r["density"] for r in kept} == {0.01} and "verdict" in output, f"kept {len(kept)} rows, {output}")
# The simulator runs all calls of a late or partial system before the next system, which then has no row.
for options, system in [("--systems ring,eager_solo --skew one", "ring"),
                        ("--systems eager_solo,ring --skew linear", "eager_solo"),
                        ("--systems eager_solo,ring --jitter 1us", "eager_solo"),
                        ("--systems ring,eager_solo --jitter 1us", "eager_solo")]:
    kept, output = interrupted(*f"--transport sim --ranks 4 --count 1K --check {options}".split())
    expect([r["system"] for r in kept] == [system] and kept[0]["correct"], f"{options}: kept {kept}")

# Another network in the simulator is another workload, and a name does not make a system MPI_Allreduce.
with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "slow.json"
    run(*"--transport sim --ranks 4 --systems ring".split(), "--json", str(path))
    x = rows(*"--transport sim --ranks 4 --systems ring --bandwidth 2GB/s --against".split(), str(path))["ring", 0.01]
    expect(x["against_before"] is None, f"compared with another network: {x}")
named = rows(*"--transport sim --ranks 4 --systems sparcml,mpi=ring".split())["mpi", 0.01]
expect(named["ratio_to_mpi"] is None and named["compared_to"] == "sparcml", f"the ring is mpi: {named}")
few = rows(*"--systems ring,again=ring --count 1000 --ranks 2 --iterations 7".split())["again", 0.01]
expect(few["against_reference"]["verdict"] == "cannot tell", f"7 iterations: {few}")
expect(few["against_reference"]["lowest"] is None, f"7 iterations have an interval: {few}")
many = rows(*"--systems ring,more=sparcml --count 1M --density 1 --ranks 2 --iterations 12".split())["more", 1]
expect(0 < many["against_reference"]["lowest"] <= many["against_reference"]["ratio"]
       <= many["against_reference"]["highest"], f"no interval: {many}")

# Compressed systems: results within their bounds, counts, also inside partial systems and in the simulator.
compressed = ("ring+bf16,ring+qsgd:8,rec_doubling+half,two_shot+qsgd:8,one_shot+bf16,flexreduce+qsgd:8,dense+mx:e4m3,"
              "ring+bf16+p2p,dsar_split+qsgd:4,ring+bound:1e-4")
for transport in ["threads", "sim"]:
    found = rows(*f"--systems {compressed} --count 50000 --density 1 --ranks 4 --transport {transport} --check".split())
    expect(len(found) == 10, f"{len(found)} rows instead of 10")
    for (system, _), r in found.items():
        expect(r["correct"] is True, f"{system} over {transport} is wrong by {r['max_error']} > {r['error_bound']}")
        expect(r["error_bound"] > 0, f"{system} has no bound")
        expect(r["codec_seconds"] is not None and r["codec_seconds"] <= r["seconds_max"], f"{system}: codec")
    counts = {system: (r["compressions"], r["decompressions"]) for (system, _), r in found.items()}
    expect(counts["ring+bf16"] == (4, 7), f"ring: {counts}")
    expect(counts["two_shot+qsgd:8"] == (4, 7), f"two-shot: {counts}")
    expect(counts["one_shot+bf16"] == (2, 8), f"one-shot, two pieces: {counts}")
    expect(counts["ring+bf16+p2p"] == (6, 6), f"ring of messages: {counts}")
    expect(counts["rec_doubling+half"] == (4, 8), f"two pieces in two rounds: {counts}")
    expect(found["ring+bf16", 1]["words_sent"] == 50000 * 3 / 4, "half of the ring's words")
found = rows(*"--systems eager_solo+ring+bf16 --count 5000 --density 1 --ranks 3 --iterations 3 --check".split())
expect(found["eager_solo+ring+bf16", 1]["correct"] is True, f"compressed within partial: {found}")
# The code of sparse streams: half and a quarter of the bytes, with the same result or a documented error.
coded = "sparcml,sparcml+coded,sparcml+coded:fast,ok_topk,ok_topk+coded,ok_topk+pruned"
if full:
    coded += ",sparcml+coded:bf16,ok_topk+coded:bf16,ok_topk+cheapest"
found = rows(*"--transport sim --count 100K --density 0.01 --ranks 4 --iterations 2 --check --systems".split(), coded)
for (system, _), r in found.items():
    expect(r["correct"] is True, f"{system}: {r}")
    part = r["words_sent"] / found[system.split("+")[0], 0.01]["words_sent"]
    bounds = {"coded": (0.5, 0.58), "coded:fast": (0.52, 0.62), "coded:bf16": (0.25, 0.4), "pruned": (0.2, 0.6),
              "cheapest": (0.2, 0.6)}
    lowest, highest = bounds.get(system.partition("+")[2], (1, 1))
    expect(lowest <= part <= highest, f"{system} sends {part} of the words of coordinates")
    bits = r["bits_index"], r["bits_value"]
    expect((None in bits) == ("+" not in system), f"{system} has {bits} bits for an index and for a value")
    if None not in bits:
        expect(5 < bits[0] < 15 and 5 < bits[1] < 27, f"{system} has {bits} bits for an index and for a value")
# Two ranks send each index and each value once.
r, = rows(*"--transport sim --count 100K --density 0.01 --systems rec_doubling+coded".split()).values()
bits = 32 * r["words_sent_mean"] / r["nnz_in"]
expect(abs(r["bits_index"] + r["bits_value"] - bits) < 1e-9, f"{r['bits_index']}, {r['bits_value']} of {bits} bits")
expect(8.08 < r["bits_index"] < 8.5, f"{r['bits_index']} bits of a uniform index at density 1 %")
fast = "--transport sim --bandwidth 100Gbit/s --compute 2ns --count 100K --density 0.01 --ranks 4 --systems"
sent = {r["words_sent"] for r in rows(*fast.split(), "sparcml,sparcml+coded,sparcml+coded:fast").values()}
expect(len(sent) == 1, f"on a fast network, where coding costs more than bytes, the three send {sent}")
run(*"--systems gtopk+pruned".split(), status=2, says="unknown part 'pruned' at character 7 of 'gtopk+pruned'")
# Compositions that need not be compiled into every spar_perf.
for system, parts in [("gtopk+cheapest", "select=exact_topk:k=10486,by=cheapest"),
                      ("ring+coded", "store=coded,by=ring"), ("rabenseifner+bf16", "store=bf16,by=rabenseifner")]:
    run("--systems", system, status=77, says=f"spar_perf was compiled without the composition {parts}")
# The two forms of a text, options in the text and on the command line, and another selector.
same = {
    "ok_topk:0.02:period=5:epsilon=0.3:tau=7":
        "select=threshold_reuse:0.02:period=5:epsilon=0.3,by=balanced_owners:tau=7",
    "ok_topk+coded:fast": "select=threshold_reuse,store=coded:fast,by=balanced_owners",
    "ring+qsgd:4:bucket=64": "store=qsgd:4:bucket=64,by=ring",
    "gaussiank": "select=gaussian,by=gather_and_merge",
    "topka+bucket_topk:k=5:bucket=500": "select=bucket_topk:k=5:bucket=500,by=gather_and_merge",
}
names = ",".join(f"{short},s{i}={slots}" for i, (short, slots) in enumerate(same.items()))
found = rows(*"--transport sim --count 20K --density 0.01 --ranks 4 --pattern drift --iterations 8 --check".split(),
             "--systems", names)
expect(len(found) == 2 * len(same), f"rows {list(found)}")
for i, short in enumerate(same):
    one, other = found[short, 0.01], found[f"s{i}", 0.01]
    expect(one["correct"] is True and one["words_sent_mean"] == other["words_sent_mean"], f"{short}: {one}, {other}")
options = "--epsilon 0.3 --tau 7 --tau-prime 5"
sim = "--transport sim --count 20K --density 0.02 --ranks 4 --pattern drift --iterations 8 --systems ok_topk"
by_options, = rows(*f"{sim} {options}".split()).values()
expect(found["ok_topk:0.02:period=5:epsilon=0.3:tau=7", 0.01]["words_sent_mean"] == by_options["words_sent_mean"],
       "options in the text and on the command line differ")

run(*"--systems ring+bf16 --type int32".split(), status=77, says="for float with 32-bit indices, not for ring+bf16")

# The errors of one sum of normal values: zfp's have a mean, QSGD's have none; two_shot errs less than the ring.
apart = "--systems ring+zfp:8,two_shot+zfp:8,two_shot+qsgd:8 --count 20000 --density 1 --ranks 4 --pattern gaussian"
errs = [rows(*f"{apart} --transport {transport} --iterations 1 --check".split()) for transport in ("threads", "sim")]
for (system, _), r in errs[0].items():
    simulated = errs[1][system, 1]
    for key in ("max_error", "mean_error", "rms_error") if "zfp" in system else (): # QSGD rounds at random
        expect(abs(r[key] - simulated[key]) < 1e-9, f"{key} of {system}: {r[key]}, but simulated {simulated[key]}")
    low, high = (0.1, 0.4) if "zfp" in system else (0, 0.05)
    expect(low < r["mean_error"] / r["rms_error"] < high, f"the errors of {system} have the mean {r['mean_error']}")
    expect(r["rms_error"] < r["max_error"] / 2, f"{system} errs by {r['rms_error']}, at most by {r['max_error']}")
rms = {system: r["rms_error"] for (system, _), r in errs[0].items()}
expect(rms["two_shot+qsgd:8"] < rms["two_shot+zfp:8"] < rms["ring+zfp:8"], f"the errors are {rms}")

# Systems that select, with their residuals: over different steps, and over one step repeatedly.
selecting = "topka,gaussiank,topkdsa,gtopk,ok_topk"
chosen = f"--systems {selecting},sparcml,rec_doubling,dsar_qsgd4,dense --count 20000 --density 0.01 --ranks 3"
for transport in ["threads", "sim"]:
    found = rows(*f"{chosen} --transport {transport} --pattern drift --iterations 12 --check".split())
    expect(len(found) == 9, f"{len(found)} rows instead of 9")
    for (system, _), r in found.items():
        expect(r["correct"] is True, f"{system} over {transport} is wrong by {r['max_error']} > {r['error_bound']}")
        expect(r["error_bound"] < 0.05 or "qsgd" in system, f"{system} may err by {r['error_bound']}")
        expect(r["iterations"] == 12 and r["warmup"] == 0, f"{system}: {r['iterations']} calls after {r['warmup']}")
        expect(r["input"] == "dense", f"{system}: input {r['input']}")
        timed = transport == "threads" and system != "dense"
        expect((r["select_seconds"] is not None) == timed, f"{system} selects in {r['select_seconds']} s")
        expect(not timed or 0 < r["select_seconds"] < r["seconds_max"], f"{system}: not a part of {r['seconds_max']}")
    k, p = 200, 3
    expect(found["topka", 0.01]["words_sent"] == 2 * k * (p - 1) + 2 * (p - 1), "TopkA sends something else")
    expect(found["gtopk", 0.01]["words_sent_mean"] == 4 * k * (p - 1) / p, "gTopk sends something else")
    expect(found["gtopk", 0.01]["nnz_out"] == k, "gTopk ends with something else")
    expect(found["dense", 0.01]["nnz_out_mean"] > 19990, "dense gradients are not dense")
    okay = found["ok_topk", 0.01]
    expect(okay["nnz_out"] <= 1.1 * k, f"Ok-Topk ends with {okay['nnz_out']} entries")
wide = "double" if full else "float"
found = rows(*f"{chosen} --input dense --type {wide} --iterations 3 --warmup 2 --check".split())
for (system, _), r in found.items():
    expect(r["correct"] is True, f"{system} from dense vectors is wrong by {r['max_error']} > {r['error_bound']}")
expect(found["rec_doubling", 0.01]["select_seconds"] > 0, "selection takes no time")

# Patterns: the union of the ranks' entries.
for pattern, lowest, highest in [("identical", 50, 50), ("disjoint", 200, 200), ("uniform", 180, 200),
                                 ("clustered", 64, 200), ("zipf", 50, 199)]:
    r = rows(*f"--systems rec_doubling --count 5000 --density 0.01 --ranks 4 --pattern {pattern} --check".split())
    out = r["rec_doubling", 0.01]["nnz_out"]
    expect(lowest <= out <= highest, f"pattern {pattern} ends with {out} entries")

# The simulator: words, messages and virtual time of recursive doubling as in SparCML, section 5.3.1.
p, k, alpha, beta = 64, 100, 1e-6, 1e-9
for pattern, entries in [("identical", k * math.log2(p)), ("disjoint", k * (p - 1))]:
    arguments = f"--transport sim --ranks {p} --systems rec_doubling --count 1M --density {k / 2**20} --check"
    r = rows(*f"{arguments} --pattern {pattern} --latency 1us --bandwidth 1GB/s".split())["rec_doubling", k / 2**20]
    expect(r["correct"] is True, f"simulated {pattern} is wrong")
    expect(r["messages"] == math.log2(p), f"simulated {pattern}: {r['messages']} messages")
    for key in ["words_sent", "words_received", "words_sent_mean", "words_received_mean"]:
        expect(r[key] == 2 * entries, f"simulated {pattern}: {key} is {r[key]}, not {2 * entries}")
    due = math.log2(p) * alpha + 8 * entries * beta
    expect(math.isclose(r["seconds"], due, rel_tol=1e-9), f"simulated {pattern}: {r['seconds']} s, not {due}")
    expect(r["iterations"] == 1, "more than one iteration without jitter")

# Without jitter, messages leave in the order in which they are sent, and those of a split do not collide.
split = "--transport sim --ranks 8 --systems dsar_split --pattern disjoint --count 80000 --density 0.1 --latency 0"
seconds = rows(*split.split(), "--bandwidth", "1GB/s")["dsar_split", 0.1]["seconds"]
expect(seconds < 1.02e-9 * 7 / 8 * (8 * 8000 + 4 * 80000), f"messages of a split meet: {seconds} s")

# On a tree, the simulated time is the model's; for BlueConnect on an asymmetric tree, the ring's.
with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "tree.json"
    host = lambda *ranks: {"bandwidth": 1e10, "latency": 0, "children": [{"rank": r} for r in ranks]}
    path.write_text(json.dumps({"bandwidth": 1e8, "latency": 0, "children": [host(0, 1), host(2, 3, 4)]}))
    planned = "flexreduce,blueconnect,hierarchical"
    over = f"--systems {planned},ring,tree_dense --density 1 --count 60000 --check --topology {path}".split()
    r = rows(*over, "--transport", "sim", "--ranks", "5")
    model = 2 * (2 / 3 * 240000 / 1e10 + 1 / 2 * 240000 / 1e8)
    expect(abs(r["flexreduce", 1]["seconds"] / model - 1) < 0.05, f"flexreduce: {r['flexreduce', 1]}, model {model}")
    expect(math.isclose(r["blueconnect", 1]["seconds"], r["ring", 1]["seconds"], rel_tol=0.01), f"no ring: {r}")
    # Half of the values cross the root's links on the way up, and half on the way down.
    for system, most in [("flexreduce", 240000), ("hierarchical", 240000), ("blueconnect", 384000), ("ring", 384000)]:
        expect(r[system, 1]["root_link_bytes"] == most, f"{system}: {r[system, 1]['root_link_bytes']}, not {most}")
        expect(0.95 < r[system, 1]["model_reached"] < 1.05, f"{system}: the model is off, {r[system, 1]}")
    expect(r["flexreduce", 1]["calls_mean"] == 1.3 and r["flexreduce", 1]["calls_max"] == 2, f"calls: {r}")
    expect(r["ring", 1]["calls_mean"] is None and r["tree_dense", 1]["model_seconds"] is None, f"no plan: {r}")
    expect(r["tree_dense", 1]["seconds"] == r["flexreduce", 1]["seconds"], f"chose {r['tree_dense', 1]}")
    sparse = "--systems ok_topk,tree_ok_topk --count 60000 --density 0.02 --input dense --check --topology".split()
    k = rows(*sparse, str(path), "--transport", "sim", "--ranks", "5")
    expect(all(row["correct"] is True for row in k.values()), f"selected over a tree: {k}")
    expect(k["tree_ok_topk", 0.02]["root_link_bytes"] < 0.9 * k["ok_topk", 0.02]["root_link_bytes"], f"no less: {k}")
    expect(all(row["correct"] is True for row in r.values()), f"over a tree: {r}")
    expect(rows(*over, "--ranks", "5", "--iterations", "2")["flexreduce", 1]["correct"] is True, "on threads: wrong")
    run(*over, "--ranks", "4", status=2, says=f"--topology {path} has 5 ranks, but the run has 4")

# Partial systems beside the others: every contribution is in some result.
within = "--systems eager_solo,quorum:2+ssar_split,eager_majority+ok_topk,everyone+dsar_qsgd4,ring --ranks 3 --check"
for transport in ["threads", "sim"]:
    for of in ["--density 0.01", "--density 1 --in-place", "--pattern drift --iterations 12", "--input dense"]:
        on = f"--transport {transport} --count 5000 {of}"
        found = rows(*f"{within} {on}".split())
        for (system, _), r in found.items():
            expect(r["correct"] is True, f"{system} {on} is wrong by {r['max_error']}, bound {r['error_bound']}")
            expect(r["messages"] > 0 and r["nnz_out"] > 0, f"{system} {on} does nothing: {r}")
            expect(r["nap_mean"] is None and r["latency_mean"] is None, f"{system} {on}: nobody is late, but {r}")
        found = rows(*f"{within} {on} --skew random --delay 2ms --tau unlimited".split())
        for (system, _), r in found.items():
            expect(r["correct"] is True, f"{system} {on} skewed: wrong by {r['max_error']}, bound {r['error_bound']}")
            expect(1 <= r["nap_min"] <= r["nap_mean"] <= 3 and r["tau"] == "unlimited", f"{system} {on}: {r}")

# Late ranks in the simulator, as in figure 9 of eager-SGD.
late = "--transport sim --ranks 8 --count 1000 --density 1 --iterations 400 --delay 1ms --check --skew"
systems = "eager_solo,eager_majority,quorum:3,everyone,eager_solo+ring,rec_doubling"
r = {system: x for (system, _), x in rows(*late.split(), "linear", "--systems", systems).items()}
for system, x in r.items():
    expect(x["correct"] is True, f"{system}, late: wrong by {x['max_error']}")
    expect(x["skew"] == "linear" and x["delay"] == 1e-3 and x["iterations"] == 400, f"{system}: {x}")
for system in ["rec_doubling", "everyone"]:
    x = r[system]
    expect(x["nap_min"] == x["nap_mean"] == 8 and x["stale_max"] == 0, f"{system} is partial: {x}")
    expect(3.5e-3 < x["latency_mean"] < 3.6e-3, f"{system} waits for the last: {x['latency_mean']} s")
for system in ["eager_solo", "eager_solo+ring"]:
    expect(r[system]["nap_mean"] < 1.05 and r[system]["stale_max"] == 1, f"{system} waits: {r[system]}")
    expect(r[system]["latency_mean"] < 0.02 * r["rec_doubling"]["latency_mean"], f"{system} waits: {r[system]}")
x = r["eager_majority"]
expect(abs(x["nap_mean"] / 4.5 - 1) < 0.2 and x["nap_min"] == 1, f"no half: {x}")
expect(0.25e-3 < x["latency_mean"] < 0.5 * r["rec_doubling"]["latency_mean"], f"majority: {x['latency_mean']} s")
expect(r["quorum:3"]["nap_min"] >= 3 and r["quorum:3"]["nap_mean"] < 3.1, f"not three: {r['quorum:3']}")
for skew, lowest, highest in [("one", 1, 7), ("random", 1, 2)]:
    x = rows(*late.split(), skew, "--systems", "eager_solo")["eager_solo", 1]
    expect(x["correct"] is True and lowest <= x["nap_min"] <= x["nap_mean"] <= highest, f"{skew}: {x}")
run(*late.split(), "one", "--systems", "eager_solo,ring", says="/ ring")
x = rows(*late.split(), "random", "--systems", "ring,eager_solo,again=ring")
x = {system: r["against_reference"] for (system, _), r in x.items()}
expect(x["eager_solo"]["verdict"] == "faster" and x["again"]["verdict"] == "cannot tell", f"late: {x}")
expect(x["eager_solo"]["lowest"] < x["eager_solo"]["ratio"] < x["eager_solo"]["highest"] < 0.5, f"late: {x}")

# Calibration, and the choice of algorithms by the calibrated file.
with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "network"
    run("--calibrate", str(path), "--iterations", "2", "--warmup", "1", "--ranks", "3", says="gamma_dense ")
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    measured = {name: float(value) for name, value in lines}
    expect(len(measured) == 6 and all(x >= 0 for x in measured.values()), f"calibrated: {measured}")
    cheap = "--systems sparcml --count 10000 --density 0.06 --iterations 1 --warmup 0 --check".split()
    r = rows(*cheap, "--ranks", "3", "--network", str(path))["sparcml", 0.06]
    expect(all(r[name] == value for name, value in measured.items()), f"chosen by {r}, not by {measured}")
    # If messages cost nothing, P - 1 messages per rank; if they are expensive, as few as possible.
    counts = []
    for alpha in [0, 1]:
        path.write_text(f"alpha {alpha}\nbeta 1e-9\ngamma_sparse 1e-7\ngamma_dense 1\n")
        os.environ["SPAR_NETWORK"] = str(path)
        counts.append(rows(*cheap, "--ranks", "8")["sparcml", 0.06]["messages"])
        expect(rows(*cheap, "--transport", "sim")["sparcml", 0.06]["alpha"] == 1e-6,
               "the simulator has its own network")
    expect(counts[0] > counts[1], f"{counts} messages whatever one costs")
    # The simulator applies the file's parameters to sparse and to dense systems.
    path.write_text("alpha 1e-5\nbeta 1e-8\ngamma_sparse 3e-9\ngamma_dense 1e-9\n")
    options = "--transport sim --ranks 2 --systems rec_doubling --pattern identical --count 10000 --density 0.01,1"
    for cores, turns in [(0, 1), (1, 2)]:
        both = rows(*options.split(), "--network", str(path), "--cores", str(cores))
        for density, due in [(0.01, 1e-5 + 800e-8 + turns * 200 * 3e-9), (1, 1e-5 + 40000e-8 + turns * 10000e-9)]:
            seconds = both["rec_doubling", density]["seconds"]
            expect(math.isclose(seconds, due, rel_tol=1e-9), f"density {density}, {cores} cores: {seconds}, not {due}")
    for shared, latency in [(0, 0), (4e-6, 4e-6), (1, 1e-5)]:
        path.write_text(f"alpha 1e-5\nbeta 1e-8\ngamma_sparse 3e-9\ngamma_dense 1e-9\nalpha_shared {shared}\n")
        r = rows(*options.split(), "--network", str(path))["rec_doubling", 1]
        found = (r["latency"], r["overhead"], r["alpha_shared"])
        expect(all(map(math.isclose, found, (latency, 1e-5 - latency, latency))), f"{found} for alpha_shared {shared}")
    path.write_text("alpha 1\nbeta x\n")
    run(*cheap, status=2, says=f"{path}:2: beta must be a finite, non-negative number of seconds, not 'x'")
    del os.environ["SPAR_NETWORK"]
    run(*f"--calibrate {path} --transport sim --latency 5us".split(), says="alpha 5e-06")

sys.exit(1 if failures else 0)
