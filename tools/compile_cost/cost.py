#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What it costs to compile the programs of this folder with g++ -std=c++20 -O2.

cost.py measure [--rounds N] [--instructions]   processor time, in turn, and size, for docs/results/compile.md: JSON
cost.py check [--instructions]                  compares the work of the compiler with the recorded state
cost.py record                                  records the state, for `check`, in recorded.json
cost.py --self-test                             checks that `check` finds a program that grew

`check` counts lines after preprocessing, emitted functions and bytes of code, which are the same on all machines with
one version of the compiler. With --instructions, it also counts the instructions of the compiler by valgrind, in about
a minute a program. It fails if a number is more than 2 % larger than the recorded one, and prints which headers and
which classes grew. Exit status: 1 for a difference, 77 if the compiler is another than the recorded one.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
RECORDED = FOLDER / "recorded.json"
OPTIONS = ["-std=c++20", "-O2", f"-I{ROOT / 'include'}"]
TOLERANCE = 0.02
CHECKED = {"dense": [], "sparse": [], "ok_topk": [], "dense_any": ["-DSPAR_COMPILED"]}
WHOLE = ["-include", "spar/spar.hpp"]


def ways():
    """(name, program, options) of each row of the table that this machine can measure; names the others."""
    for program in ("dense", "sparse", "ok_topk"):
        yield f"{program}, spar.hpp", program, WHOLE
        yield f"{program}, part of spar.hpp", program, []
        yield f"{program}, compiled library", program, ["-DSPAR_COMPILED"]
        yield f"{program}, any.hpp", f"{program}_any", ["-DSPAR_COMPILED"]
    yield "regex", "regex", []
    wrapper = shutil.which("mpicxx.openmpi")
    flags = subprocess.check_output([wrapper, "-showme:compile"], text=True).split() if wrapper else []
    for program, header, package in (("mpi", "mpi.h", "libopenmpi-dev"),
                                     ("boost_mpi", "boost/mpi/communicator.hpp", "libboost-mpi-dev")):
        tried = subprocess.run([compiler(), *flags, "-include", header, "-E", "-x", "c++", os.devnull],
                               capture_output=True)
        if tried.returncode == 0:
            yield program, program, flags
        else:
            print(f"skipped: {program} (no {header}; the Debian package {package} has it)", file=sys.stderr)


def compiler():
    return os.environ.get("CXX", "g++")


def version():
    found = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()[0]


def compile_to(out, program, options):
    source = FOLDER / f"{program}.cpp"
    subprocess.run([compiler(), *OPTIONS, *options, "-c", str(source), "-o", str(out)], check=True)


def code_bytes(compiled):
    shown = subprocess.run(["size", str(compiled)], capture_output=True, text=True, check=True)
    return int(shown.stdout.splitlines()[1].split()[0])


def instructions(program, options):
    """The instructions of the compiler proper, with the options that g++ passes to it."""
    found = subprocess.run([compiler(), "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True)
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [found.stdout.strip(), "-quiet", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE", *OPTIONS, *options]
    run = subprocess.run([*tool, *command, str(FOLDER / f"{program}.cpp"), "-o", "/dev/null"], capture_output=True,
                         text=True, check=True)
    return int(re.search(r"I +refs: +([\d,]+)", run.stderr)[1].replace(",", ""))


def lines_by_header(program, options):
    """The lines that are not empty after preprocessing, by the folder of spar or the header of another library."""
    run = subprocess.run([compiler(), *OPTIONS, *options, "-E", str(FOLDER / f"{program}.cpp")], capture_output=True,
                         text=True, check=True)
    lines, part = collections.Counter(), ""
    for line in run.stdout.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            part = re.sub(r"^.*/include/(c\+\+/\d+/)?|^.*/compile_cost/", "", marker[1])
            if part.startswith("spar/"):
                part = part.rpartition("/")[0]
        elif line.strip():
            lines[part] += 1
    return dict(lines)


def class_of(symbol):
    """The class or the namespace of a function, without template arguments."""
    symbol, depth, name = symbol.replace("v0_1::", "").replace("(anonymous namespace)", ""), 0, ""
    for character in re.sub(r"operator(<<|<=>|<=|<|>>|>=|>|\(\)|->)", "operator", symbol):
        depth += (character == "<") - (character == ">")
        if depth == 0 and character not in "<>":
            name += character
    name = name.partition("(")[0].split(" ")[-1] if "(" in name else name
    return name.rpartition("::")[0] or "(no class)"


def code_by_class(compiled):
    """{class: [functions, bytes]} of an object file."""
    command = ["nm", "-C", "-S", "--defined-only", str(compiled)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    code = collections.defaultdict(lambda: [0, 0])
    for line in run.stdout.splitlines():
        if found := re.match(r"[0-9a-f]+ ([0-9a-f]+) [tTwW] (.*)", line):
            entry = code[class_of(found[2])]
            entry[0] += 1
            entry[1] += int(found[1], 16)
    return dict(code)


def work(program, options, count_instructions):
    """The work of the compiler for a program, as `check` compares it."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "program.o")
        compile_to(out, program, options)
        state = {"lines": lines_by_header(program, options), "code": code_by_class(out), "bytes": code_bytes(out)}
    if count_instructions:
        state["instructions"] = instructions(program, options)
    return state


def totals(state):
    found = {
        "lines": sum(state["lines"].values()),
        "functions": sum(functions for functions, _ in state["code"].values()),
        "bytes of code": state["bytes"],
    }
    if "instructions" in state:
        found["instructions"] = state["instructions"]
    return found


def growth(old, new):
    """The parts of which a number grew, the largest growth first."""
    parts = sorted(((new.get(part, 0) - old.get(part, 0), part) for part in {*old, *new}), reverse=True)
    return [f"{part or '(the program)'} +{by}" for by, part in parts[:8] if by > 0]


def faults(program, old, new):
    """A sentence for each number of a program that is too large."""
    before, after = totals(old), totals(new)
    for name, count in after.items():
        if name not in before or count <= before[name] * (1 + TOLERANCE):
            continue
        yield (f"{program}: {count} {name}, {100 * (count / before[name] - 1):.1f} % more than the recorded "
               f"{before[name]}; expected at most {100 * TOLERANCE:.0f} % more")
    if any(after[name] > before.get(name, after[name]) * (1 + TOLERANCE) for name in after):
        for kind, of in (("functions", 0), ("bytes", 1)):
            grown = growth(*({part: entry[of] for part, entry in state["code"].items()} for state in (old, new)))
            yield f"  {kind}: {', '.join(grown) or 'none'}"
        yield f"  lines: {', '.join(growth(old['lines'], new['lines'])) or 'none'}"


def check(count_instructions):
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    if version() != recorded["compiler"]:
        print(f"skipped: compile cost (the recorded compiler is {recorded['compiler']}, this one {version()})")
        return 77
    if count_instructions and not shutil.which("valgrind"):
        print("skipped: instructions of the compiler (no valgrind)")
        return 77
    found = []
    for program, options in CHECKED.items():
        state = work(program, options, count_instructions)
        old = recorded["programs"][program]
        shown = ", ".join(f"{count} {name} ({count / totals(old)[name]:.3f})" for name, count in totals(state).items())
        print(f"{program}: {shown}", flush=True)
        found += faults(program, old, state)
    print("\n".join(found))
    if found:
        print("Reduce the work, or record it by `tools/compile_cost/cost.py record`; the commit says what it gives.")
    return 1 if found else 0


def record():
    programs = {program: work(program, options, True) for program, options in CHECKED.items()}
    state = {"compiler": version(), "programs": programs}
    text = json.dumps(state, indent=1, sort_keys=True)
    RECORDED.write_text(re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text) + "\n", encoding="utf-8")
    return 0


def measure(rounds, count_instructions):
    table, seconds = {}, collections.defaultdict(list)
    rows = list(ways())
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "program.o")
        for _ in range(rounds):
            for name, program, options in rows:
                before = os.times()
                compile_to(out, program, options)
                after = os.times()
                seconds[name].append(after.children_user + after.children_system - before.children_user -
                                     before.children_system)
                table[name] = {"object": out.stat().st_size, "code": code_bytes(out)}
    for name, program, options in rows:
        entry = table[name]
        entry["seconds"] = round(statistics.median(seconds[name]), 3)
        entry["range"] = [round(min(seconds[name]), 3), round(max(seconds[name]), 3)]
        if count_instructions:
            entry["instructions"] = instructions(program, options)
    print(json.dumps({"compiler": version(), "rounds": rounds, "programs": table}, indent=1))
    return 0


def self_test():
    old = {"lines": {"spar/core": 100, "span": 50}, "code": {"spar::threads": [10, 1000]}, "bytes": 1000}
    same = {"lines": {"spar/core": 103, "span": 50}, "code": {"spar::threads": [10, 1019]}, "bytes": 1019}
    more = {"lines": {"spar/core": 120, "span": 50}, "code": {"spar::threads": [10, 1000], "spar::mpi": [5, 30]},
            "bytes": 1030}
    assert not list(faults("p", old, same)), "a growth of less than 2 % passes"
    found = "\n".join(faults("p", old, more))
    for part in ("170 lines", "15 functions", "1030 bytes of code", "spar::mpi +5", "spar::mpi +30", "spar/core +20"):
        assert part in found, (part, found)
    for symbol, name in {
        "spar::v0_1::detail::merger<float, int>::fold(std::pair<int, float>&)": "spar::detail::merger",
        "std::vector<int>::operator()(int) const [clone .actor]": "std::vector",
        "void spar::v0_1::raise<spar::error>(char const*, ...)": "spar",
        "main": "(no class)",
    }.items():
        assert class_of(symbol) == name, (symbol, class_of(symbol))
    print("self-test passed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["measure", "check", "record"], nargs="?")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.action == "record":
        return record()
    if options.action == "check":
        return check(options.instructions)
    if options.action == "measure":
        return measure(options.rounds, options.instructions)
    parser.error("expected measure, check, record or --self-test")


if __name__ == "__main__":
    sys.exit(main())
