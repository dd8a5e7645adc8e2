# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""VALUES maps the name of a place in a page to a function that returns its text, a number or a table. The modules of
`pages`, one for each page of docs/results, add theirs. The functions here write numbers as text."""

import itertools
import statistics

VALUES = {}
MI = 2**20


def value(function):
    VALUES[function.__name__] = function
    return function


def number(x):
    """A ratio with two decimals, or three if it is small."""
    return f"{x:.2f}" if x >= 0.105 else f"{x:.3f}"


def between(found):
    low, high = number(min(found)), number(max(found))
    return low if low == high else f"{low} to {high}"


def three_digits(x):
    return f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"


def table(head, lines):
    text = ["| " + " | ".join(line).lstrip() + " |" for line in [head, *lines]]
    text.insert(1, "|" + "---|" * len(head))
    return "\n\n" + "\n".join(text) + "\n\n"


def between_plain(found):
    return f"{min(found):.2f} to {max(found):.2f}"


def seconds_to(accuracy, history):
    """Seconds of the steps until a seed's training has the accuracy first, interpolated between two measurements; for
    each seed that reaches it."""
    found = []
    for points in zip(*(zip(at["accuracy_by_seed"], at["seconds_by_seed"]) for at in history)):
        for (before, start), (after, end) in itertools.pairwise([(0, 0), *points]):
            if after >= accuracy:
                found.append(start + (end - start) * (accuracy - before) / (after - before))
                break
    return found


def median_and_range(found, seeds, form="{:.3g}"):
    if not found:
        return "never"
    text = form.format(statistics.median(found))
    if len(found) > 1:
        text += f" ({form.format(min(found))} to {form.format(max(found))})"
    return text if len(found) == seeds else f"{text}, {len(found)} of {seeds} seeds"


def with_range(found, form="{:.2f}"):
    """The median of some measurements, the lowest and the highest."""
    return "{} ({} to {})".format(*(form.format(x) for x in (statistics.median(found), min(found), max(found))))


def percents_between(shares):
    low, high = (f"{100 * x:.0f}" for x in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def percent(x):
    return f"{100 * x:.2f} %"
