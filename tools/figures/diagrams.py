# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the pictures that explain terms and structure: a sparse stream, a composition, a call, and the layers of the
headers, which are those that scripts/lint/layers.py enforces."""

import sys
from pathlib import Path

import svg
from svg import arrow, box, text

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "lint"))
import layers  # noqa: E402
import tree  # noqa: E402

WIDTH = 600
ERROR, RED = "#fee2e2", "#b04040"


def note(x, y, words, anchor=None):
    return text(x, y, words, 12.5, svg.SOFT, anchor)


def stream():
    """A sparse stream of 4 of 16 floats, and its bytes for each number of entries."""
    n, entries, value, index = 16, {2: "0.7", 5: "-1.5", 11: "0.2", 12: "3.0"}, 4, 4
    entry, delta = value + index, n * value // (value + index)
    parts = [text(18, 30, "A vector as dense values, and as a sparse stream", 18, bold=True),
             note(18, 58, f"{n} floats as dense values: {n * value} bytes")]
    side = 35
    for i in range(n):
        full = i in entries
        parts.append(svg.rectangle(18 + side * i, 68, side, 32, svg.BLUE if full else svg.PAPER, svg.LANE))
        parts.append(text(18 + side * (i + 0.5), 89, entries.get(i, "0"), 13, svg.INK if full else svg.SOFT, "middle"))
        parts.append(text(18 + side * (i + 0.5), 115, str(i), 11.5, svg.SOFT, "middle"))
    parts.append(note(18, 158, f"{len(entries)} entries of {entry} bytes: {len(entries) * entry} bytes"))
    for row, (name, values) in enumerate((("indices", [str(i) for i in entries]), ("values", entries.values()))):
        y = 170 + 44 * row
        parts.append(note(18, y + 21, name))
        for i, words in enumerate(values):
            parts.append(svg.rectangle(74 + 46 * i, y, 46, 32, svg.YELLOW if row == 0 else svg.BLUE, svg.LANE))
            parts.append(text(97 + 46 * i, y + 21, words, 13, svg.INK, "middle"))

    left, bottom, wide, high = 348, 268, 226, 112  # the bytes of a message, by its number of entries
    x = [left + wide * count / n for count in range(n + 1)]
    y = [bottom - high * min(count * entry, n * value) / (n * value) for count in range(n + 1)]
    parts += [svg.line(left, bottom, left + wide, bottom, svg.SOFT),
              svg.line(left, bottom, left, bottom - high - 8, svg.SOFT),
              svg.polyline([(x[0], y[0]), (x[delta], y[delta])], "#0063a3", 3),
              svg.polyline([(x[delta], y[delta]), (x[n], y[n])], "#c04600", 3),
              svg.line(x[delta], y[delta], x[delta], bottom, svg.LANE, 1, "3 3"),
              note(x[delta], bottom + 17, f"delta = {delta}", "middle"), note(left, bottom + 17, "0", "middle"),
              note(x[n], bottom + 17, f"{n} entries", "end"),
              note(left - 6, bottom + 4, "0", "end"), note(left - 6, bottom - high + 4, f"{n * value}", "end"),
              note(left - 20, bottom - high - 16, "bytes of a message"),
              text(x[3] + 14, y[3] + 12, "entries", 12.5, "#0063a3"),
              text(x[delta] + 20, y[delta] + 20, "dense values", 12.5, "#c04600")]
    return svg.picture(WIDTH, 302, "A sparse stream",
                       f"A vector of {n} floats with {len(entries)} nonzeros takes {n * value} bytes as dense values "
                       f"and {len(entries) * entry} bytes as entries, each with an index and a value. From {delta} "
                       "entries on, the entries take at least as many bytes as the dense values.", parts)


def composing():
    """One call's way through the four slots of a composition."""
    dashed = "5 4"
    parts = [text(18, 30, "An allreduce in four parts", 18, bold=True),
             text(250, 66, "dense values", 14, anchor="middle"),
             arrow([(250, 73), (250, 98)]),
             box(130, 98, 240, 78, svg.BLUE, "Selector",
                 ["which entries are sent", "everything, exact_topk, gaussian, ..."]),
             box(462, 104, 120, 66, svg.ORANGE, "Residual", ["for the next call", "(error feedback)"]),
             arrow([(370, 124), (462, 124)], dash=dashed), note(416, 117, "the rest", "middle"),
             arrow([(462, 152), (370, 152)], dash=dashed), note(416, 167, "next call", "middle"),
             arrow([(250, 176), (250, 226)]), note(260, 205, "selected entries"),
             box(130, 226, 240, 96, svg.GREEN, "Schedule",
                 ["which messages are sent, and in", "which order ranks reduce",
                  "cheapest, ring, balanced_owners, ..."]),
             box(418, 236, 140, 76, svg.YELLOW, "Topology",
                 ["how the network", "connects the ranks", "flat, on_tree, on_plan"], 13),
             arrow([(418, 274), (370, 274)]),
             text(18, 244, "a sparse", 14), text(18, 261, "stream", 14), arrow([(78, 250), (130, 250)]),
             arrow([(130, 296), (92, 296)]), text(18, 291, "the sum,", 14), text(18, 308, "with the", 14),
             text(18, 325, "same bits", 14), text(18, 342, "on all ranks", 14),
             arrow([(250, 322), (250, 372)], both=True), note(262, 351, "encode, decode"),
             box(130, 372, 240, 78, svg.PINK, "Storage",
                 ["how messages encode their content", "coo, dense, half, qsgd, zfp, ..."]),
             arrow([(370, 411), (574, 411), (574, 170)], dash=dashed), note(384, 404, "rounding errors"),
             arrow([(250, 450), (250, 496)], both=True), note(262, 477, "messages"),
             box(130, 496, 240, 56, svg.GREY, "Transport", ["mpi, nccl, threads, sim"])]
    return svg.picture(WIDTH, 572, "An allreduce in four parts",
                       "The selector takes entries from dense values; the rest stays in the residual for the next "
                       "call. The schedule sends and reduces the entries, or a sparse stream of the caller, in an "
                       "order that the topology gives. The storage encodes each message for the transport; its "
                       "rounding errors go to the residual. All ranks get the sum with the same bits.", parts)


def call():
    """A call on one rank, from its arguments to its result or error."""
    steps = [("The program calls", ["allreduce(net, x, algorithm, op)", "or start_allreduce, which returns a handle"],
              svg.PAPER, None),
             ("Validation", ["lengths, indices and options"],
              svg.BLUE, ("invalid_argument", ["before anything is sent"])),
             ("Signature", ["types, dimension, algorithm, options and", "operation become a digest of 64 bits"],
              svg.BLUE, None),
             ("Channel", ["numbers the call; each message carries", "number and digest, checked on arrival"],
              svg.GREEN, ("mismatch", ["names both ranks", "and their values"])),
             ("Schedule", ["a coroutine that sends, receives and", "reduces; suspended while it waits"],
              svg.GREEN, ("corrupt_message", ["a damaged message"])),
             ("Progress", ["wait(), done() or a progress thread completes", "messages and resumes the schedule"],
              svg.GREEN, ("timeout", ["no message before", "the deadline"])),
             ("Result", ["the sum, with the same bits on all ranks;", "messages, bytes and seconds as statistics"],
              svg.PAPER, ("peer_failed", ["on all other ranks,", "with the reason"]))]
    parts = [text(18, 30, "A call on one rank", 18, bold=True)]
    left, wide, y, joined = 18, 336, 50, []
    for i, (title, lines, fill, error) in enumerate(steps):
        high = 40 + 17 * len(lines)
        parts.append(box(left, y, wide, high, fill, title, lines))
        if error:
            name, words = error
            tall = 27 + 17 * len(words)
            middle = y + high / 2
            parts.append(box(408, middle - tall / 2, 154, tall, ERROR, name, words, 13.5, "#d08a8a"))
            if name == "peer_failed":  # every other error after the first message leads to this one on other ranks
                parts.append(arrow([(582, joined[0]), (582, middle), (562, middle)], RED))
            else:
                parts.append(arrow([(left + wide, middle), (408, middle)], RED))
                if name != "invalid_argument":
                    joined.append(middle)
                    parts.append(svg.line(562, middle, 582, middle, RED, 1.5))
        if i + 1 < len(steps):
            both = title == "Schedule"
            parts.append(arrow([(left + wide / 2, y + high), (left + wide / 2, y + high + 24)], both=both, size=8))
        y += high + 24
    return svg.picture(WIDTH, y - 4, "A call on one rank",
                       "A call validates its arguments, computes its signature, gets a channel, and runs its schedule, "
                       "which progress resumes until the result is there. Each step has its error: invalid_argument, "
                       "mismatch, corrupt_message, timeout. An error on one rank ends the call on all ranks, with "
                       "peer_failed on the others.", parts)


CONTENTS = {
    "core": "elements, operations, errors, memory, options",
    "runtime": "calls in flight: channel, messages, progress, coroutines",
    "cuda": "device memory",
    "transport": "mpi, nccl, threads, sim",
    "storage": "streams, codecs",
    "topology": "flat, trees, plans",
    "workspace": "the work on values",
    "selector": "which entries are sent",
    "rendezvous": "where the processes of a job meet",
    "model": "the time of each algorithm",
    "collective": "composition and schedules",
    "cuda/kernel": "kernels",
    "optimizer": "error feedback, SGD",
    "cuda/values": "values on devices",
    "system": "allreduce and the published systems",
}
COLOURS = [svg.GREY, svg.GREY, svg.YELLOW, svg.BLUE, svg.PINK, svg.GREEN, svg.YELLOW, svg.ORANGE, svg.BLUE]


def wrapped(words, most):
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 1 > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def layers_picture():
    rows = {}
    for layer, level in layers.LEVEL.items():
        rows.setdefault(level, []).append(layer)
    top = sorted(name.removeprefix("include/spar/") for name in tree.files(".hpp", ".cuh", under="include/spar/")
                 if name.count("/") == 2)
    parts = [text(18, 30, "The layers of include/spar", 18, bold=True),
             note(18, 52, "A header includes headers of its own layer and of lower layers, never of a layer beside or "
                          "above."),
             note(18, 69, "a/ < b/: headers in b/ may include headers in a/, not the reverse. x/*: the headers "
                          "directly in x/.")]
    y, left, right, column = 84, 18, WIDTH - 18, 138  # folders of cuda stand in a column of their own
    names = wrapped([name + "," * (name != top[-1]) for name in top], 84)
    high = 34 + 17 * len(names)
    parts.append(box(left, y, right - left, high, svg.PAPER, "headers for programs", names))
    y += high + 10
    described = []
    for level in sorted(rows, reverse=True):
        own = [layer for layer in rows[level] if not layer.startswith("cuda")]
        cuda = [layer for layer in rows[level] if layer.startswith("cuda")]
        beside = column + 10 if level >= layers.LEVEL["cuda"] else 0
        wide = (right - left - beside - 10 * (len(own) - 1)) / max(1, len(own))
        boxes = []
        for layer, x, width in ([(layer, left + i * (wide + 10), wide) for i, layer in enumerate(own)]
                                + [(layer, right - column, column) for layer in cuda]):
            lines = wrapped(CONTENTS[layer].split(), int(width / 6))
            inner = {}
            for folder, place in layers.WITHIN.get(layer, {}).items():
                inner.setdefault(place, []).append(folder + "/" if folder else f"{layer}/*")
            groups = [", ".join(inner[place]) for place in sorted(inner)]
            if groups:
                lines += wrapped(" < ".join(groups).split(), int(width / 6))
            boxes.append((layer, x, width, lines))
            described.append(f"level {level}: {layer}")
        high = 30 + 16 * max(len(lines) for *_, lines in boxes)
        for layer, x, width, lines in boxes:
            parts.append(box(x, y, width, high, COLOURS[level % len(COLOURS)], layer + "/", lines, 13))
        y += high + 10
    return svg.picture(WIDTH, y + 8, "The layers of include/spar",
                       f"Folders by level, from the highest; a header may include only its own layer and lower ones. "
                       f"{'; '.join(described)}.", parts)


def draw():
    return {"stream": stream(), "composing": composing(), "call": call(), "layers": layers_picture()}
