# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/late_ranks.md."""

import raw
from raw import only, rows
from values import VALUES, between, percent, table, value


@value
def late_ranks():
    mean = {name: found["mean"] for name, found in raw.latencies().items()}
    systems = {"mpi": "MPI_Allreduce", "eager_majority": "`eager_majority`", "eager_solo": "`eager_solo`"}
    times = [f"{1e3 * mean[s]:.0f}" if mean[s] > 0.01 else f"{1e3 * mean[s]:.2f}" for s in systems]
    gains = [mean["mpi"] / mean[s] for s in systems]
    return table(["", *systems.values()],
                 [["mean time of a call, ms", *times],
                  ["times as fast as MPI_Allreduce", *(f"{g:.2f}" if 1 < g < 10 else f"{g:.0f}" for g in gains)],
                  ["ranks whose own call is in the result, of 32",
                   *(f"{raw.latencies()[s]['active']:g}" for s in systems)],
                  ["times as fast in the paper", "1", "2.46", "53"]])


@value
def late_majority():
    mean = {name: found["mean"] for name, found in raw.latencies().items()}
    return f"{mean['mpi'] / mean['eager_majority']:.2f}"


@value
def late_overhead():
    """Times of a partial Rabenseifner in which nobody is late, relative to Rabenseifner's algorithm."""
    pairs = [[r["seconds"] for r in rows("late_ranks_quiet.txt") if r["system"] == system]
             for system in ("eager_solo+rabenseifner", "rabenseifner")]
    return between([partial / whole for partial, whole in zip(*pairs)])


def hyperplane(participation, delay, name="hyperplane_quiet.txt"):
    return next(r for r in raw.hyperplane(name) if r["participation"] == participation and r["delay"] == delay)


@value
def late_loss():
    found = [r["loss"] for r in raw.hyperplane("hyperplane_quiet.txt") if r["participation"] == "solo"]
    everyone = {r["loss"] for r in raw.hyperplane("hyperplane_quiet.txt") if r["participation"] == "everyone"}
    return f"{min(found):.2f} to {max(found):.2f}, and with `everyone` {min(everyone):.2f}"


def late_training(system):
    return only(raw.read_json("training_late.json"), system=system)


def of_training(system):
    """Adds the accuracy and the time of a step of a system to VALUES."""
    name = system.replace(":", "_").replace("eager_", "")
    VALUES[f"late_accuracy_{name}"] = lambda: percent(late_training(system)["accuracy_mean"])
    VALUES[f"late_step_{name}"] = lambda: f"{1e3 * late_training(system)['step_seconds']:.1f} ms"


for _system in ("dense", "eager_majority", "quorum:5", "eager_solo"):
    of_training(_system)


def eager_sgd(name="eager_sgd.json", **chosen):
    """The rows of trainings by eager-SGD, by participation. Ranks are simulated unless the file says otherwise."""
    return {r["participation"]: r for r in raw.read_json(name) if all(r.get(key) == x for key, x in chosen.items())}


def faster(found, participation):
    return found[participation]["steps_per_second"] / found["everyone"]["steps_per_second"]


def percents_right(row):
    """The accuracy of a training, with that of each seed if there are several."""
    mean = f"{100 * row['accuracy_mean']:.1f} %"
    return mean if row["seeds"] == 1 else (
        f"{mean} ({100 * row['accuracy_min']:.1f} to {100 * row['accuracy_max']:.1f})")


UNEQUAL = {"ranks": 8, "imbalance": "none", "tau": 64}


@value
def late_sequences():
    plain, averaged = eager_sgd(**UNEQUAL, average=0), eager_sgd(**UNEQUAL, average=1)
    bounded = eager_sgd(ranks=8, imbalance="none", tau=4)["solo"]
    names = ["everyone", "solo", "majority", "quorum:4"]
    lines = []
    for text, found in (("", plain), ("averaged after each epoch: ", averaged)):
        lines += [[text + "steps per second / those of `everyone`", *(f"{faster(found, p):.2f}" for p in names)],
                  [text + "accuracy", *(percents_right(found[p]) for p in names)],
                  [text + "oldest gradient, in steps", *(f"{found[p]['stale_max']}" for p in names)]]
    speed = bounded["steps_per_second"] / plain["everyone"]["steps_per_second"]
    lines += [["tau = 4: the same three", "", f"{speed:.2f}, {percents_right(bounded)}, {bounded['stale_max']}", "",
               ""],
              ["paper, LSTM on UCF101: times as fast", "1", "1.64", "1.27", ""],
              ["paper: accuracy", "69.6 %", "60.6 %", "69.7 %", ""]]
    return table(["", *(f"`{p}`" for p in names)], lines)


def of_sequences(name, of):
    VALUES[f"late_sequences_{name}"] = lambda: of(eager_sgd(**UNEQUAL, average=0))


for _participation in ("solo", "majority"):
    of_sequences(_participation, lambda found, p=_participation: f"{faster(found, p):.2f}")
    of_sequences(f"{_participation}_accuracy",
                 lambda found, p=_participation: f"{100 * found[p]['accuracy_mean']:.1f} %")
of_sequences("everyone_accuracy", lambda found: f"{100 * found['everyone']['accuracy_mean']:.1f} %")


@value
def late_sequences_frames():
    row = eager_sgd(**UNEQUAL, average=0)["everyone"]
    return (f"{row['frames_min']:,.0f} to {row['frames_max']:,.0f} frames, with a mean of {row['frames_mean']:,.0f} "
            f"and a deviation of {row['frames_deviation']:,.0f}")


@value
def late_several():
    lines = []
    for ranks, late, delay, paper in ((64, 4, 0.3, "1.25"), (64, 4, 0.46, "1.23"), (8, 2, 0.3, ""), (4, 1, 0.3, "")):
        found = eager_sgd(ranks=ranks, imbalance=f"random:{late}", delay=delay)
        limit = (0.84 + delay) / (0.84 + delay * late / ranks)
        lines.append([f"{late} of {ranks}, by {1e3 * delay:.0f} ms", f"{limit:.2f}"])
        lines[-1] += [f"{faster(found, p):.2f}" for p in ("solo", "majority")] + [paper]
        lines[-1] += [percents_right(found[p]) for p in ("everyone", "solo", "majority")]
    found = eager_sgd(ranks=64, imbalance="cloud")
    lines.append(["64, as in a cloud", "", *(f"{faster(found, p):.2f}" for p in ("solo", "majority")), "",
                  *(percents_right(found[p]) for p in ("everyone", "solo", "majority"))])
    return table(["late ranks", "limit", "`solo`", "`majority`", "paper, `solo`", "accuracy of `everyone`", "of `solo`",
                  "of `majority`"], lines)


@value
def late_processes():
    """Trainings on processes that sleep for what computing leaves of a step."""
    lines = []
    for text, chosen in (
            ("sequences of different lengths, 8 ranks", {"program": "sequences", "ranks": 8, "average": 0}),
            ("the same, averaged after each epoch", {"program": "sequences", "ranks": 8, "average": 1}),
            ("the same, 4 ranks", {"program": "sequences", "ranks": 4}),
            *((f"hyperplane, 1 of 8 late by {1e3 * d:.0f} ms",
               {"program": "hyperplane", "ranks": 8, "imbalance": "random:1", "delay": d}) for d in (0.02, 0.03, 0.04)),
            ("hyperplane, 2 of 8 late by 20 ms", {"program": "hyperplane", "ranks": 8, "imbalance": "random:2"}),
            ("hyperplane, 1 of 4 late by 20 ms", {"program": "hyperplane", "ranks": 4}),
            ("hyperplane, 8 as in a cloud", {"program": "hyperplane", "imbalance": "cloud"})):
        found = eager_sgd("eager_sgd_mpi.json", **chosen)
        learned = (lambda r: f"{100 * r['accuracy_mean']:.1f} %") if chosen["program"] == "sequences" else (
            lambda r: f"loss {r['final_loss']:.2f}")
        lines.append([text, *(f"{faster(found, p):.2f}" for p in ("solo", "majority")),
                      *(learned(found[p]) for p in ("everyone", "solo", "majority"))])
    return table(["", "`solo`", "`majority`", "`everyone` learns", "`solo`", "`majority`"], lines)


@value
def late_participations():
    """Steps per second of hyperplane, relative to waiting for everyone."""
    delays = (0.02, 0.03, 0.04)
    return table(["", *(f"delay of {1e3 * d:.0f} ms" for d in delays)],
                 [*([f"`{p}`", *(f"{hyperplane(p, d, 'hyperplane.txt')['ratio']:.2f}" for d in delays)]
                    for p in ("solo", "quorum:4", "majority")),
                  ["limit", *(f"{(0.032 + d) / (0.032 + d / 8):.2f}" for d in delays)],
                  ["paper, `solo`, delays of 200, 300 and 400 ms", "1.50", "1.75", "2.01"]])


VALUES |= {
    "late_hyperplane": lambda: ", ".join(f"{hyperplane('solo', d)['ratio']:.2f}" for d in (0.02, 0.03, 0.04)),
    "late_fresh_solo": lambda: f"{late_training('eager_solo')['fresh_mean']:.2f}",
}
