#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/papers: the list of rows, usage, verdicts and spreads, rows that fail, and that the recorded rows are those
of the script. With SPAR_FULL in the environment, measures a row."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAPERS = {"Ok-Topk", "SparCML", "FlexReduce", "eager-SGD", "Zhou et al."}
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def papers(*arguments):
    return subprocess.run([ROOT / "scripts/papers", *arguments], capture_output=True, text=True)


sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("papers", str(ROOT / "scripts/papers"))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader("papers", loader))
loader.exec_module(script)


def main(*arguments):
    """The exit status of the script, and what it says on each stream."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        return script.main(list(arguments)), out.getvalue(), errors.getvalue()


def found_by(name, done, short=False):
    """What a row finds if its commands write these rows."""
    m = script.measurement(short, pathlib.Path("/nowhere"))
    m.rows = lambda *command: done
    return script.ROWS[name]["function"](m)


listed = papers("--list")
rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in listed.stdout.splitlines()}
expect(listed.returncode == 0 and len(rows) == len(listed.stdout.splitlines()), f"--list prints {listed.stdout}")
expect({said.split(",")[0] for said in rows.values()} == PAPERS, f"--list names the papers otherwise: {rows}")

unknown = papers("ok_topk_scaling", "nothing")
expect(unknown.returncode == 2 and "no row nothing" in unknown.stderr, f"an unknown row: {unknown}")
expect(papers("--nothing").returncode == 2, "an unknown option has another exit status")

recorded = json.loads((ROOT / "bench/results/papers.json").read_text(encoding="utf-8"))
expect(set(recorded) <= set(rows), f"no such rows: {set(recorded) - set(rows)}")
for name, row in recorded.items():
    expect(row["verdict"] in ("same", "less", "not seen", "not measured"), f"{name} has {row}")
    expect(row["verdict"] == "not measured" or row["commands"], f"{name} has no commands")
    expect(str(ROOT) not in str(row) and "/tmp/" not in str(row), f"{name} names a folder: {row}")
    expect(rows[name] == f"{row['paper']}, {row['place']}: {row['claim']}", f"{name} claims {rows[name]}")

# Verdicts: at least 0.9 of the paper's gain, a gain, none. The gain of a ratio is what it exceeds 1 by. A saving is a
# share of the time.
expect([script.judged(x, 2) for x in (1.91, 1.89, 1.03, 1.02)] == ["same", "less", "less", "not seen"], "judged")
expect([script.judged(x, 1.12) for x in (1.11, 1.1, 1.01)] == ["same", "less", "not seen"], "judged a small gain")
expect([script.near(x, 16) for x in (14, 15, 17, 18)] == ["less", "same", "same", "less"], "near")
expect([script.judged_saving(x, 0.3) for x in (0.27, 0.26, 0.02, -1)] == ["same", "less", "not seen", "not seen"],
       "judged_saving")
expect(script.worst(["same", "not seen", "less"]) == "not seen" and script.worst(["less", "same"]) == "less", "worst")
expect(script.spread([3.0, 1.0, 2.0]) == "2 (1 to 3)" and script.spread([0.5]) == "0.5", "spread")
expect(script.spread([0.2, 0.1], script.percent) == "15.0 % (10.0 % to 20.0 %)", "spread of shares")

# Ratios are of calls that ran in turn, and of the parts of trainings of the same seed.
expect(script.ratios({"times": [4, 9]}, {"times": [2, 3]}) == [2, 3], "ratios of calls")
expect(script.savings({"times": [4]}, {"times": [1]}) == [0.75], "savings")
trained = {"history": [{"seconds_by_seed": [1, 2], "accuracy_by_seed": [0.5, 0.7]},
                       {"seconds_by_seed": [4, 3], "accuracy_by_seed": [0.8, 0.9]}]}
expect(script.parts(trained) == [1, 2, 3, 1], f"parts: {script.parts(trained)}")
expect(script.parts({"history": [{"seconds": 2}, {"seconds": 5}]}) == [2, 3], "parts of one training")
# An accuracy is reached between two measurements, the first of which is that of no training.
reached = script.seconds_to(0.7, trained["history"])
expect([round(seconds, 9) for seconds in reached] == [3, 2], f"seconds to an accuracy: {reached}")
reached = script.seconds_to(0.85, trained["history"])
expect([round(seconds, 9) for seconds in reached] == [2.75], f"seconds to what one of two seeds reaches: {reached}")


def training(*seconds_and_accuracies):
    return {"history": [{"seconds_by_seed": [s], "accuracy_by_seed": [a]} for s, a in seconds_and_accuracies]}


# All reach 80 %: dense after 20 s, ok_topk after 5 s.
done = {"dense+overlap": training((10, 0.7), (20, 0.8)), "gaussiank": training((6, 0.7), (12, 0.85)),
        "ok_topk": training((5, 0.8), (10, 0.9))}
found, verdict = found_by("ok_topk_time_to_accuracy", done)
expect(verdict == "same" and found.startswith("5 s to 80.0 %; dense+overlap 4, gaussiank 2 times"), f"found {found}")
done["gaussiank"] = training((4, 0.8), (8, 0.85))
expect(found_by("ok_topk_time_to_accuracy", done)[1] == "less", "another system is first")
found, verdict = found_by("ok_topk_training", done)
expect(verdict == "not seen" and "Gaussiank 0.8 (0.8 to 0.8) times" in found, f"Gaussiank is faster: {found}")

# A faster training counts only with the accuracy.
done = {"dense": {**training((10, 0)), "accuracy_mean": 0.9},
        "eager_majority": {**training((5, 0)), "accuracy_mean": 0.895}}
expect(found_by("eager_severe", done) == ("2 times; 89.5 %, `dense` 90.0 %", "same"), "a faster training")
done["eager_majority"]["accuracy_mean"] = 0.88
expect(found_by("eager_severe", done)[1] == "less", "a training that loses accuracy")

# xi is below the number of ranks, and its growth slows down. The last epoch does not count.
xi = lambda *means: {"ok_topk": {"history": [{"xi_mean": mean} for mean in means]}}
for means, verdict in (((1.7, 2.5, 2.4, 9), "same"), ((1, 2, 2.9, 9), "same"), ((2, 2, 2.1, 9), "same"),
                       ((1, 2, 3.1, 9), "less"), ((3, 4.5, 4.6, 1), "less"), ((1, 3, 6, 1), "not seen")):
    expect(found_by("ok_topk_xi", xi(*means))[1] == verdict, f"xi by epoch is {means}: not {verdict}")

# A mean below the bound is not enough: the claim is about each rank.
volume = lambda most: {"ok_topk": {"nnz_in": 10, "words_sent_mean": 40, "words_sent": most}}
expect([found_by("ok_topk_volume", volume(x))[1] for x in (59, 61)] == ["same", "less"], "words of a rank")


class made_up(script.measurement):
    """Gives each row results with all keys that the programs write, of all systems that its commands name."""

    def run(self, *command):
        self.commands.append(str(command[0]))
        variants = [("all ideas", 1), ("equal regions", 2), ("no moves", 2)]
        return json.dumps([{"variant": variant, "pattern": pattern, "split": {"mean": x}, "gather": {"mean": x}}
                           for variant, x in variants for pattern in ("clusters", "embedding")])

    def json(self, *command):
        self.commands.append(str(command[0]))
        words = dict(zip(command, command[1:]))
        at = {"seconds": 1, "communicating_seconds": 1, "seconds_by_seed": [1], "accuracy_by_seed": [0.9], "xi_mean": 2}
        names = next((words[key].split(",") for key in ("--systems", "--participation", "--settings") if key in words),
                     ["mpi", "split_allgather"])
        rows = [{"system": name, "participation": name, "times": [1, 2], "seconds": 1, "latency_mean": 1, "nap_mean": 1,
                 "nnz_in": 1, "nnz_out_mean": 1, "n": 10, "words_sent_mean": 4, "words_sent": 5, "calls_mean": 1,
                 "select_seconds": 1, "steps_per_second": 1, "final_loss": 1,
                 "accuracy_mean": 0.9, "selected_deviation": 0,
                 "summed_deviation": 0, "epoch_seconds": 1,
                 "history": [{**at, "seconds_by_seed": [seconds]} for seconds in (1, 2, 3, 4)]}
                for name in names]
        return {run: rows for run in ("url_hosts8x1", "webspam_hosts4", "url_one4", "scd_hosts4")} if (
            "scripts/sparcml" in command) else rows


with tempfile.TemporaryDirectory() as directory:
    for name in rows:
        for short in (False, True):
            m = made_up(short, pathlib.Path(directory))
            found, verdict = script.ROWS[name]["function"](m)
            expect(found and verdict in script.VERDICTS and m.commands, f"{name} finds {found}: {verdict}")

# A row that fails, one that cannot be measured here, and one that is interrupted: the others are measured and kept.
with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "rows.json"

    def tool(m, status):
        m.run("sh", "-c", f"echo no namespaces >&2; exit {status}")

    def interrupted(m):
        raise KeyboardInterrupt

    functions = {"works": lambda m: (m.run("echo", "1 time").strip(), "same"), "fails": lambda m: tool(m, 3),
                 "lacks": lambda m: tool(m, 77), "interrupted": interrupted}
    script.ROWS = {name: {"paper": "P", "place": "here", "claim": "C", "function": f} for name, f in functions.items()}
    read = lambda: json.loads(path.read_text(encoding="utf-8"))

    status, out, errors = main("--json", str(path), "lacks", "works")
    expect(status == 77 and "lacks: not measured" in out and "works: same" in out, f"a missing tool: {status} {out}")
    expect(list(read()) == ["works", "lacks"] and read()["lacks"]["found"] == "no namespaces", f"kept {read()}")
    expect(read()["works"]["commands"] == ["echo '1 time'"] and read()["works"]["found"] == "1 time", f"kept {read()}")
    expect(list(read()["works"]["took"]) == ["full"] and "2 rows, " in out, f"no seconds: {read()} {out}")

    status, out, errors = main("--short", "--json", str(path), "fails", "works")
    expect(status == 1 and "exit status 3" in errors and "works: same" in out, f"a failed command: {status} {errors}")
    expect(list(read()) == ["works", "lacks"] and set(read()["works"]["took"]) == {"full", "short"}, f"kept {read()}")
    expect(main("lacks", "fails")[0] == 1 and main("fails", "lacks")[0] == 1, "a failure is the exit status")

    before = read()["works"]
    script.ROWS["works"]["function"] = functions["lacks"]
    expect(main("--json", str(path), "works")[0] == 77 and read()["works"] == before, "a record was lost")

    script.ROWS["works"]["function"] = lambda m: ("2 times", "less")
    status, out, errors = main("--json", str(path), "works", "interrupted", "fails")
    expect(status == 130 and "interrupted in interrupted" in errors, f"interrupted: {status} {errors}")
    expect(read()["works"]["found"] == "2 times" and "lacks" in read(), f"interrupted, and kept {read()}")
    expect(list(path.parent.iterdir()) == [path], "a file remains")

if "SPAR_FULL" in os.environ:
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "rows.json"
        path.write_text('{"another": {}}', encoding="utf-8")
        measured = papers("--short", "--json", str(path), "flexreduce_calls")
        expect(measured.returncode == 0 and "flexreduce_calls: same" in measured.stdout, f"a row: {measured}")
        found = json.loads(path.read_text(encoding="utf-8"))
        expect(list(found) == ["flexreduce_calls", "another"], f"the file has {list(found)}")
        expect(len(found["flexreduce_calls"]["commands"]) == 9, f"the row has {found['flexreduce_calls']}")

sys.exit(1 if failures else 0)
