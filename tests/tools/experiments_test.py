#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs scripts/sparcml, the scripts of bench that train or simulate, and the scripts that train an example, in a folder
where stand_in.py replaces the programs that they start: usage, commands, errors, and what they write. The pages of
results must be able to read it, and show the ratios that follow from the times of stand_in.py."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {  # what each measured script takes options of
    "linear": "examples/linear", "train_images": "examples/images", "train_preloaded": "examples/plain_mpi",
    "perf": "tools/spar_perf", "netperf": "tools/spar_perf", "sequences": "examples/sequences",
    "hyperplane": "examples/hyperplane"}
failures = []
sys.path[:0] = [str(ROOT / "tools" / "results")]
sys.dont_write_bytecode = True

import pages.flexreduce  # noqa: E402
import pages.late_ranks  # noqa: E402
import pages.ok_topk  # noqa: E402
import pages.preload  # noqa: E402
import pages.sparcml  # noqa: E402, F401
import pages.python  # noqa: E402, F401
import pages.speed  # noqa: E402, F401
import raw  # noqa: E402
from values import VALUES  # noqa: E402


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def same(found, expected, what):
    expect(found == expected, f"{what}: {found}, expected {expected}")


def place(name, at):
    """Copies a script. Python starts without a search for it and for packages, which would take most of the time."""
    shutil.copy(ROOT / name, at)
    at.write_text(at.read_text().replace("#!/usr/bin/env python3\n", f"#!{sys.executable} -IS\n", 1))


def copy(folder):
    """A folder with the scripts, and stand_in.py in place of what they run."""
    for name in ("scripts", "bench/results", "tools/results"):
        (folder / name).mkdir(parents=True)
    for name in ("scripts/sparcml", "bench/training_hosts.py", "bench/time_to_accuracy.py", "bench/weak_scaling.py",
                 "bench/eager_sgd.py", "bench/transports.py", "bench/python.py", "tools/results/records.py",
                 "bench/results/network_aries", "bench/results/network_1gbit"):
        place(name, folder / name)
    for name in [*PROGRAMS, "program", "hosts", "ranks", "dense_overlap"]:
        place("tests/tools/stand_in.py", folder / "scripts" / name)


class ended:
    """A run of a script: its status, what it says, and the commands that it ran."""

    def __init__(self, folder, *command, fail="0:"):
        log = folder / "log"
        log.write_text("")
        environment = os.environ | {"SPAR_TEST_LOG": str(log), "SPAR_TEST_FAIL": fail}
        done = subprocess.run([str(folder / command[0]), *map(str, command[1:])], capture_output=True, text=True,
                              env=environment)
        self.status, self.says = done.returncode, done.stdout + done.stderr
        self.commands = [json.loads(line) for line in log.read_text().splitlines()]

    def options(self, name):
        """The values of an option in all commands that have it."""
        return [words[words.index(name) + 1] for words in (c["words"] for c in self.commands) if name in words]


def shown(name, results):
    """Each number and table that the pages make of a file alone, if it has these results."""
    read, original = set(), raw.read_json
    made = {}
    for place, text_of in VALUES.items():
        read.clear()
        raw.read_json = lambda file: read.add(file) or original(file)
        text_of()
        if read == {name}:
            raw.read_json = lambda file: results
            try:
                made[place] = text_of()
            except Exception as error:  # pylint: disable=broad-except
                expect(False, f"{place} cannot be made of {name}: {type(error).__name__}: {error}")
    raw.read_json = original
    expect(made, f"no number is made of {name}")
    return made


def check_options(commands):
    """Each program has the options that it gets."""
    known = {}
    for words in (c["words"] for c in commands):
        if (name := words[0]) not in PROGRAMS:
            continue
        if name not in known:
            sources = [*(ROOT / PROGRAMS[name]).glob("*.?pp"), *(ROOT / "examples").glob("*.hpp")]
            texts = [path.read_text(encoding="utf-8") for path in [ROOT / "scripts" / name, *sources]]
            known[name] = set(re.findall(r"--([a-z][\w-]*)", "\n".join(texts)))
        given = {word[2:] for word in words if word.startswith("--")}
        expect(given <= known[name], f"{name} has no option {given - known[name]}")


def check_usage(folder, script, kind):
    """Wrong options and files, before anything is measured."""
    other = folder / "other.json"
    opposite = "[]" if kind is dict else "{}"
    for text, says in ((opposite, f"expected a {kind.__name__}"), ("{", "cannot be read as JSON")):
        other.write_text(text)
        run = ended(folder, script, other)
        expect((run.status, run.commands) == (2, []) and says in run.says, f"{script} with {text}: {run.says}")
        same(other.read_text(), text, f"{script} changes a file that has something else")
    for arguments, says in (((), "FILE"), ((other, "--nothing"), "--nothing"),
                            ((folder / "none/x.json",), "there is no folder"), ((folder,), "is not a plain file")):
        run = ended(folder, script, *arguments)
        expect((run.status, run.commands) == (2, []) and says in run.says, f"{script} {arguments}: {run.says}")
    expect(ended(folder, script, "--help").status == 0, f"{script} --help fails")


def check_sparcml(folder):
    file = folder / "linear.json"
    check_usage(folder, "scripts/sparcml", dict)
    run = ended(folder, "scripts/sparcml", file)
    same(run.status, 0, run.says)
    check_options(run.commands)
    results = json.loads(file.read_text())
    recorded = json.loads((ROOT / "bench/results/linear.json").read_text())
    same({name: [r["system"] for r in rows] for name, rows in results.items()},
         {name: [r["system"] for r in rows] for name, rows in recorded.items()}, "the runs and their systems")
    for name, rows in results.items():
        apart = [] if name.startswith("scd") else [0, *[1] * (len(rows) - 1)]  # thousandths, from MPI's losses
        same([round(1000 * r["batch_losses_apart"]) for r in rows if "batch_losses_apart" in r], apart, name)
        expect(not any("batch_losses" in r for r in rows), f"{name} keeps all losses")
    numbers = shown("linear.json", results)
    same([numbers[f"linear_{x}"] for x in ("url", "eight_hosts", "apart", "scd_ratio")],
         ["4.0 to 4.0", "4.0 to 4.0", "1e-03", "4"], "the numbers of sparcml.md")

    short = ended(folder, "scripts/sparcml", file, "--short")
    same([set(run.options("--epochs")), set(short.options("--epochs"))], [{"3", "5"}, {"1"}], "epochs")
    same([10 * float(x) for x in short.options("--scale")], [float(x) for x in run.options("--scale")], "samples")
    before = file.read_text()
    run = ended(folder, "scripts/sparcml", file, fail="77:webspam")
    same((run.status, len(run.commands), file.read_text() == before), (77, 3, True), "a run that cannot be made here")


def leaves(tree):
    return [tree["rank"]] if "rank" in tree else [rank for child in tree["children"] for rank in leaves(child)]


def links(tree):
    """[(bandwidth, latency), ...] of each level, from the root down."""
    return [] if "rank" in tree else [(tree["bandwidth"], tree["latency"]), *links(tree["children"][0])]


def check_training_hosts(folder):
    file = folder / "training_hosts.json"
    script = "bench/training_hosts.py"
    check_usage(folder, script, dict)
    run = ended(folder, script, file, "images", "nothing")
    expect(run.status == 2 and "there is no part nothing; there are images, preloaded" in run.says, run.says)

    # The parts run one by one, and the file keeps those that do not run.
    run = ended(folder, script, file, "--short", "levels")
    same((run.status, list(json.loads(file.read_text()))), (0, ["levels"]), "one part")
    same(json.loads(file.read_text())["levels"]["short"], True, "a short run")
    run = ended(folder, script, file, "sizes")
    same(sorted(json.loads(file.read_text())), ["levels", "sizes"], "two parts")
    before = file.read_text()
    run = ended(folder, script, file, "codecs", fail="77:1gbit")
    same((run.status, len(run.commands), file.read_text() == before), (77, 2, True), "a part that cannot run here")

    run = ended(folder, script, file)
    same(run.status, 0, run.says)
    check_options(run.commands)
    results = json.loads(file.read_text())
    recorded = json.loads((ROOT / "bench/results/training_hosts.json").read_text())
    for part, found in results.items():
        of = lambda rows: [[r.get(key) for key in ("hosts", "link", "tree", "repeat", "step", "system", "ranks", "n")]
                           for r in rows]
        same(of(found["rows"]), of(recorded[part]["rows"]), part)
        expect(not any("unused" in r or None in r.values() for r in found["rows"]), f"{part} keeps all keys")
        same(found["short"], False, f"{part} is short")
    expect(all(c["environment"]["SPAR_MIN_BYTES"] == "65536" for c in run.commands), "short sums go to MPI")
    trees = [json.loads(c["topology"]) for c in run.commands if "topology" in c]
    ranks = [int(x) for x, c in zip(run.options("--ranks"), [c for c in run.commands if "topology" in c])]
    same([leaves(tree) for tree in trees], [list(range(p)) for p in ranks], "ranks of the trees")
    same(links(trees[3]), [(1.25e8, 2e-5), (1.25e9, 2e-5), (1e10, 1e-6)], "links of racks at 1 Gbit/s")
    same([len(tree["children"]) for tree in trees[0]["children"]], [1, 2, 3], "hosts of the racks")
    numbers = shown("training_hosts.json", results)
    same([numbers[name] for name in ("flexreduce_sizes_saved", "flexreduce_sizes_linear", "flexreduce_levels_racks",
                                     "flexreduce_epochs", "flexreduce_epoch_exchange", "flexreduce_epoch_images",
                                     "preload_training_ring", "preload_training_saved", "flexreduce_training_run")],
         ["25 %", "3.0 to 3.0, 3.0 to 3.0, 3.0 to 3.0", "0.75, 0.75, 0.75, 0.75", "25 %", "75 %", "1,600",
          "50 % and 50 %", "75 %", "nothing else running"], "the numbers of flexreduce.md and preload.md")


def check_time_to_accuracy(folder):
    file, script = folder / "time_to_accuracy.json", "bench/time_to_accuracy.py"
    check_usage(folder, script, list)
    run = ended(folder, script, file)
    same(run.status, 0, run.says)
    check_options(run.commands)
    rows = json.loads(file.read_text())
    recorded = json.loads((ROOT / "bench/results/time_to_accuracy.json").read_text())
    of = lambda rows: [(r["link"], r["ranks"], r["system"], r["seeds"]) for r in rows]
    same(of(rows), of(recorded), "the rows")
    same(set(run.options("--link")), {"1gbit", "100mbit"}, "links")
    numbers = shown("time_to_accuracy.json", rows)
    same([numbers["ok_topk_sooner_85"], numbers["ok_topk_first_85"]],
         ["8, 8, 8, 8", ", ".join(["`ok_topk`"] * 4)], "the numbers of ok_topk.md")

    run = ended(folder, script, file, fail="77:100mbit")
    same((run.status, of(json.loads(file.read_text()))), (77, of(recorded)[:9]), "a training that fails")
    run = ended(folder, script, file, "--short")
    same((set(run.options("--epochs")), run.options("--seeds")), ({"1"}, []), "a short run")


def check_weak_scaling(folder):
    file, script = folder / "ok_topk.json", "bench/weak_scaling.py"
    check_usage(folder, script, list)
    run = ended(folder, script, file)
    same(run.status, 0, run.says)
    check_options(run.commands)
    rows = json.loads(file.read_text())
    recorded = json.loads((ROOT / "bench/results/ok_topk.json").read_text())
    of = lambda rows: sorted((r["network"], r["n"], r["ranks"], r["system"], r.get("iterations", 0)) for r in rows)
    same(of(rows), of(recorded), "the rows")
    expect(not any("unused" in r for r in rows), "weak_scaling.py keeps all keys")
    dense = 1e-3 * 8 * 4 * 32  # seconds of the dense allreduce of 1 Mi values on 32 ranks
    same({round(r["computation"] / dense, 9) for r in rows if "computation" in r}, {0.31}, "the computation of a step")
    # Without a term, the network is otherwise the same.
    networks = [c["network"] for c in run.commands if c["words"][0] == "perf"]
    for term, without in zip(("alpha", "beta", "gamma"), networks[-14:-8]):
        changed = {line.split()[0]: line.split()[1] for was, line in zip(networks[0].splitlines(), without.splitlines())
                   if was != line}
        expect(changed and all(key.startswith(term) and float(x) == 1e-15 for key, x in changed.items()),
               f"without {term}, these differ: {changed}")
    numbers = shown("ok_topk.json", rows)
    same([numbers[f"ok_topk_{x}"] for x in ("slower", "computation_share", "local_work", "gaussiank_entries",
                                            "step_fastest")],
         ["2.0 to 8.0", "0.31", "3.0 ns for each merged entry, and 1.0 ns for each value", "1.00 to 1.00",
          "`topkdsa` takes 1.8"], "the numbers of ok_topk.md")

    # Runs whose rows the file has are not repeated; a failure keeps the rows before it.
    same(ended(folder, script, file).commands, [], "a second run")
    file.write_text(json.dumps([r for r in rows if (r["network"], r["ranks"]) != ("1gbit", 128)]))
    same(ended(folder, script, file, fail="3:128").status, 3, "a run that fails")
    same(ended(folder, script, file).options("--ranks"), ["128", "128"], "runs that the file lacks")
    same(of(json.loads(file.read_text())), of(recorded), "the rows of two runs")


def check_eager_sgd(folder):
    file, script = folder / "eager_sgd.json", "bench/eager_sgd.py"
    check_usage(folder, script, list)
    expect(ended(folder, script, file, "--mpi", "none").status == 2, "an MPI library that does not exist")
    run = ended(folder, script, file)
    same(run.status, 0, run.says)
    check_options(run.commands)
    rows = json.loads(file.read_text())
    recorded = json.loads((ROOT / "bench/results/eager_sgd.json").read_text())
    of = lambda rows: [[r[key] for key in ("program", "ranks", "imbalance", "delay", "tau", "average", "participation",
                                           "seeds")] for r in rows]
    same(of(rows), of(recorded), "the rows")
    numbers = shown("eager_sgd.json", rows)
    same([numbers["late_sequences_solo"], numbers["late_sequences_everyone_accuracy"]], ["4.00", "90.0 %"],
         "the numbers of late_ranks.md")
    run = ended(folder, script, file, "--mpi", "mpich")
    check_options(run.commands)
    same(({c["words"][0] for c in run.commands}, set(run.options("--mpi"))), ({"sequences", "hyperplane"}, {"mpich"}),
         "ranks that sleep")
    before = file.read_text()
    same((ended(folder, script, file, fail="1:cloud").status, file.read_text() == before), (1, True), "a failure")


def check_transports(folder):
    file, script = folder / "transports.json", "bench/transports.py"
    check_usage(folder, script, list)
    run = ended(folder, script, file, "--short")
    same(run.status, 0, run.says)
    check_options(run.commands)
    same([" ".join(c["words"][:3]) for c in run.commands],
         3 * ["perf --transport ucx", "perf --mpi openmpi", "perf --mpi mpich"] +
         ["netperf --transport ucx", "netperf --mpi openmpi", "netperf --mpi mpich"], "the turns")
    rows = json.loads(file.read_text())
    recorded = json.loads((ROOT / "bench/results/transports.json").read_text())
    of = lambda rows: [[r[key] for key in ("case", "transport", "system")] for r in rows if r["round"] == 0]
    same(of(rows), of(recorded), "the rows")
    twice = [{**row, "round": turn} for row in rows for turn in (0, 1)]
    *_, last = shown("transports.json", twice)["speed_transports"].strip().split("\n")
    same(last, "| dense 4 MiB, `ring`, 4 hosts | 16 ms | 1.00 (1.00 to 1.00) | 0.50 (0.50 to 0.50) |"
         " 1.00 (1.00 to 1.00) | 0.50 (0.50 to 0.50) |", "the last line of the table")
    same(ended(folder, script, file, "--short", fail="77:16M").status, 77, "a case that fails")
    same({r["case"] for r in json.loads(file.read_text())}, {"small", "sparse"}, "the cases before a failure")


def check_python(folder):
    """The programs of a rank need torch, so stand_in.py writes their rows, too."""
    file, script = folder / "python.json", "bench/python.py"
    check_usage(folder, script, list)
    run = ended(folder, script, file, "--rounds", 2)
    same(run.status, 0, run.says)
    same([" ".join(c["words"][:2]) for c in run.commands],
         2 * ["perf --transport", "ranks 2"] + 3 * ["hosts 1,1,1,1", "ranks 4"], "the commands")
    same({c["environment"].get("GLOO_SOCKET_IFNAME") for c in run.commands if c["words"][:2] == ["ranks", "2"]}, {"lo"},
         "the interface of gloo")
    rows = json.loads(file.read_text())
    recorded = json.loads((ROOT / "bench/results/python.json").read_text())
    of = lambda rows: [[r["case"], r["system"]] for r in rows if r.get("round", 0) == 0]
    same(of(rows), of(recorded), "the rows")
    numbers = shown("python.json", rows)
    same(numbers["python_sparse"], "4", "the number of python.md")
    *_, last = numbers["python_calls"].strip().split("\n")
    same(last, "| 8 bytes of NumPy, against C++ | 4.00 µs | 0.02 µs | 262.14 (262.14 to 262.14) |",
         "the last line of the table")
    *_, last = numbers["python_embedding"].strip().split("\n")
    same(last, "| `two_shot`, 8 bits | 250 | 125 | 0.25 | 0.25 | 2 | 90.0 |", "the last line of the table")
    same(ended(folder, script, file, "--only", "mlp").status, 0, "a case alone")
    same(of(json.loads(file.read_text())), of(rows), "a case alone replaces its rows")
    same(ended(folder, script, file, "--only", "image", fail="77:image").status, 77, "a case that fails")
    same(len(json.loads(file.read_text())), len(rows), "the rows after a failure")


def check_training_scripts(folder):
    """scripts/linear and the others of scripts/training.sh."""
    names = ["linear", "train_images", "train_preloaded", "hyperplane", "sequences"]
    for name in [*names, "training.sh"]:
        place(f"scripts/{name}", folder / "scripts" / name)
    for name in ["setup", "hosts", "mpirun", "program", *(f"{program}_{mpi}" for program in
                 ("linear", "images", "plain_mpi", "hyperplane", "sequences") for mpi in ("openmpi", "mpich"))]:
        place("tests/tools/stand_in.py", folder / "scripts" / name)
    file, images = folder / "rows.json", folder / "train-images-idx3-ubyte.gz"

    def commands(name, *arguments, fail="0:", status=0, says=""):
        run = ended(folder, f"scripts/{name}", *arguments, fail=fail)
        expect(run.status == status and says in run.says, f"{name} {arguments}: status {run.status}, {run.says}")
        return [" ".join(c["words"]).replace(f"{folder}/", "") for c in run.commands]

    same(commands("linear", "--ranks", 3, "--set=url", "--json", file, "--mpi=mpich", "--epochs", 2),
         ["setup build", "program linear mpich",
          f"mpirun mpich 3 scripts/linear_mpich --set=url --epochs 2 --json {file.name}",
          f"linear_mpich --set=url --epochs 2 --json {file.name}"], "linear on ranks")
    words = "scripts/mpirun openmpi 5 scripts/linear_openmpi --set url"
    same(commands("linear", "--hosts", "2,3", "--link", "100mbit", "--set", "url"),
         ["setup build", "hosts 2,3 100mbit true", "program linear any", f"hosts 2,3 100mbit {words}",
          words.removeprefix("scripts/"), "linear_openmpi --set url"], "linear on hosts")
    same(commands("linear", "--hosts", "1,1", fail="77:true", status=77), ["setup build", "hosts 1,1 1gbit true"],
         "no namespaces")
    same(commands("train_images", "--data", folder, status=77, says=f"no images in {folder}"), ["setup build images"],
         "no images")
    images.write_text("")
    same(commands("train_images", "--data", folder, "--hosts=1,1", "--systems", "dense")[-1],
         f"images_openmpi --systems dense --data {folder}", "images")
    for name, arguments, ranks in (("hyperplane", [], 8), ("sequences", ["--simulate", 64], 1),
                                   ("sequences", ["--simulate=64"], 1), ("sequences", ["--ranks", 2], 2)):
        found = commands(name, *arguments, "--participation", "solo")
        same(found[:2], ["setup build hyperplane", f"program {name} any"], name)
        expect(found[2].startswith(f"mpirun openmpi {ranks} scripts/{name}_openmpi"), f"{name} {arguments}: {found}")

    run = ended(folder, "scripts/train_preloaded", "--settings", "own,ring+zfp:8", "--json", file, "--epochs", 2)
    same(([r["system"] for r in json.loads(file.read_text())], run.options("--epochs")),
         (["own", "ring+zfp:8"], ["2"] * 4), "settings")
    preloaded = [c["environment"].get("SPAR_ALLREDUCE") for c in run.commands if c["words"][0] == "plain_mpi_openmpi"]
    same(preloaded, [None, "ring+zfp:8"], "what is preloaded")
    expect(f"{'ring+zfp:8':24}   90.00 %     16.00" in run.says, f"the table of train_preloaded: {run.says}")

    for name in names:
        for arguments, says in (("--ranks 0", "--ranks must be a positive number, not 0"), ("--json", "needs a value"),
                                ("--mpi none", "--mpi must be openmpi or mpich, not none")):
            same(commands(name, *arguments.split(), status=2, says=f"{name}: "), [], f"{name} {arguments}")
            expect(says in ended(folder, f"scripts/{name}", *arguments.split()).says, f"{name} {arguments}: not {says}")
        found = commands(name, "--ranks", 7, "--data", folder, "--help", says=f"scripts/{name} [")
        expect(not found or found[-1].split()[1:2] == ["--help"] and " 1 " in found[-2], f"{name} --help: {found}")


for check in (check_sparcml, check_training_hosts, check_time_to_accuracy, check_weak_scaling, check_eager_sgd,
              check_transports, check_python, check_training_scripts):
    with tempfile.TemporaryDirectory() as directory:
        copy(pathlib.Path(directory))
        check(pathlib.Path(directory))

sys.exit(1 if failures else 0)
