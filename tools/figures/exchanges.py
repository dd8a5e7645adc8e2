# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the traces that exchanges.cpp writes: ranks as vertical lanes, time downwards, messages as arrows."""

import svg

WIDTH, LEFT, RIGHT, BAR = 600, 46, 20, 10
# By rank. The colours have a contrast of at least 4.5 to white, and colour-blind readers can tell neighbours apart.
COLOURS = ["#0063a3", "#c04600", "#007a58", "#a03070", "#5b46b0", "#7d5c00", "#00757f", "#4b5563"]
LABEL = 12.5  # font size of the numbers on arrows
BIGGEST, LEAST = 760, 300  # height of the part with the lanes
ROW = 13  # height for each message
SHORTEST = 34  # an arrow of the fastest message goes down at least so far, unless the picture would become too high


class Message:
    def __init__(self, source, target, begin, end, size):
        self.source, self.target, self.begin, self.end, self.size = source, target, begin, end, size


def messages_of(figure):
    """The messages, by the time of their sends. Two ranks exchange the messages of a lane in order."""
    sends, receives = {}, {}
    for e in figure["trace"]:
        kind = e.get("cat")
        if e["ph"] != "X" or kind not in ("send", "receive") or e["args"].get("cancelled"):
            continue
        args = e["args"]
        pair = (e["pid"], args["peer"]) if kind == "send" else (args["peer"], e["pid"])
        (sends if kind == "send" else receives).setdefault((*pair, args["collective"], args["lane"]), []).append(e)
    found = []
    for key in sorted(sends.keys() | receives.keys()):
        sent, received = sends.get(key, []), receives.get(key, [])
        if [e["args"]["bytes"] for e in sent] != [e["args"]["bytes"] for e in received]:
            raise ValueError(f"{figure['name']}: rank {key[0]} sends other messages to rank {key[1]} than arrive there")
        found += [Message(key[0], key[1], s["ts"], r["ts"] + r["dur"], s["args"]["bytes"])
                  for s, r in zip(sent, received)]
    return sorted(found, key=lambda m: (m.begin, m.source, m.target, m.end))


def microseconds(time):
    return f"{time:.1f} µs"


def describe(figure, ranks, messages, end):
    total = sum(m.size for m in messages)
    result = f"; {figure['result']}" if figure["result"] else ""
    sentences = [f"{figure['title']}, {ranks} ranks, {figure['input']}{result}.",
                 f"{len(messages)} messages with {total} bytes; {microseconds(end)} on a simulated network."]
    for rank in range(ranks):
        own = [f"{m.size} bytes to rank {m.target}" for m in messages if m.source == rank]
        sentences.append(f"Rank {rank} sends {', '.join(own) if own else 'nothing'}.")
    return " ".join(sentences)


def overlap(a, b):
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


def length_inside(x1, y1, x2, y2, area):
    """The part of a line, from 0 to 1, that lies in a rectangle."""
    low, high = 0.0, 1.0
    for at, step, least, most in ((x1, x2 - x1, area[0], area[2]), (y1, y2 - y1, area[1], area[3])):
        if step == 0:
            if not least <= at <= most:
                return 0
            continue
        ends = sorted(((least - at) / step, (most - at) / step))
        low, high = max(low, ends[0]), min(high, ends[1])
    return max(0, high - low)


def place_labels(arrows, obstacles):
    """Where the number of each arrow stands: on the arrow, where it covers as little as possible."""
    taken, places = [], []
    for own, (x1, y1, x2, y2, words) in enumerate(arrows):
        width, height = 0.58 * LABEL * len(words) + 3, LABEL + 1
        best = None
        for percent in (30, 36, 24, 42, 48, 54, 60, 66, 72, 18, 78):
            x, y = x1 + (x2 - x1) * percent / 100, y1 + (y2 - y1) * percent / 100
            area = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            cost = sum(overlap(area, other) for other in taken) * 20 + sum(overlap(area, o) for o in obstacles) * 6
            for i, (a, b, c, d, _) in enumerate(arrows):
                if i != own:
                    cost += length_inside(a, b, c, d, area) * ((a - c) ** 2 + (b - d) ** 2) ** 0.5
            cost = round(cost + abs(percent - 30) / 20, 3)
            if best is None or cost < best[0]:
                best = (cost, x, y, area)
        taken.append(best[3])
        places.append(best[1:])
    return places


def draw(figure):
    ranks, hosts = len(figure["calls"]), figure["hosts"]
    messages = messages_of(figure)
    # The picture begins with the calls, or with the programs before them if the calls begin at different times.
    calls = [begin for begin, _ in figure["calls"]]
    apart = min(calls) != max(calls)
    first = 0 if apart else calls[0]
    span = max(*(end for _, end in figure["calls"]), *(m.end for m in messages)) - first
    scale = min(max(SHORTEST / min(m.end - m.begin for m in messages), LEAST / span, ROW * len(messages) / span),
                BIGGEST / span)
    gap = 26 if hosts else 0
    step = (WIDTH - LEFT - RIGHT - gap * max(0, len(hosts) - 1)) / ranks
    host_of = [h for h, size in enumerate(hosts) for _ in range(size)] or [0] * ranks
    lanes = [LEFT + step * (r + 0.5) + gap * host_of[r] for r in range(ranks)]
    top = 124 if hosts else 106
    bottom = top + span * scale

    def at(time):
        return top + (time - first) * scale

    total = sum(m.size for m in messages)
    facts = [f"{len(messages)} messages", f"{total} bytes", microseconds(span)]
    if figure["result"]:
        facts.append(figure["result"])
    parts = [svg.text(18, 30, figure["title"], 18, bold=True),
             svg.text(18, 51, f"{ranks} ranks, {figure['input']}", 14, svg.SOFT),
             svg.text(18, 70, ", ".join(facts), 14, svg.SOFT)]

    for h, size in enumerate(hosts):
        own = [x for r, x in enumerate(lanes) if host_of[r] == h]
        left, right = own[0] - step / 2 + 2, own[-1] + step / 2 - 2
        parts.append(svg.rectangle(left, top - 42, right - left, bottom - top + 60, "#f3f6fa", svg.FAINT, 10))
        parts.append(svg.text((left + right) / 2, top - 26, f"host {h}", 13, svg.SOFT, "middle"))

    tick = next(t for t in (0.5, 1, 2, 5, 10, 20, 50) if t * scale >= 44)
    for i in range(int(span / tick + 1e-9) + 1):
        y = at(first + i * tick)
        parts.append(svg.line(LEFT - 4, y, WIDTH - RIGHT, y, svg.FAINT, 0.7))
        parts.append(svg.text(LEFT - 8, y + 4, f"{i * tick:g}" + " µs" * (i == 0), 12, svg.SOFT, "end"))

    for r, x in enumerate(lanes):
        begin, end = figure["calls"][r]
        name = f"rank {r}" if ranks <= 6 else str(r)
        parts.append(svg.text(x, top - 12, name, 13.5, COLOURS[r], "middle", bold=True))
        parts.append(svg.line(x, top, x, bottom, svg.LANE, 1, "2 4"))
        if begin > first:
            parts.append(svg.rectangle(x - 8, top, 16, at(begin) - top, svg.GREY, svg.LANE, 3))
        parts.append(svg.line(x, at(begin), x, at(end), svg.LANE, 2.5))

    most = max(m.size for m in messages)
    arrows = []
    for m in messages:
        side = 1 if m.target > m.source else -1
        arrows.append((lanes[m.source] + side * 2, at(m.begin), lanes[m.target] - side * (BAR / 2 + 1), at(m.end),
                       str(m.size)))
    for m, (x1, y1, x2, y2, _) in sorted(zip(messages, arrows), key=lambda pair: -pair[0].size):
        width = 1.2 + 3.3 * m.size / most
        parts.append(svg.arrow([(x1, y1), (x2, y2)], COLOURS[m.source], width, 6 + 2 * width))
    for e in figure["trace"]:
        if e["ph"] == "X" and e["name"] == "compute":
            height = max(3, e["dur"] * scale)
            parts.append(svg.rectangle(lanes[e["pid"]] - BAR / 2, at(e["ts"] + e["dur"]) - height, BAR, height,
                                       COLOURS[e["pid"]], radius=1.5))
    parts += [svg.circle(x, at(time), 4, COLOURS[r]) for r, x in enumerate(lanes) for time in figure["calls"][r]]
    obstacles = [(x - BAR / 2, top - 8, x + BAR / 2, bottom + 4) for x in lanes]
    for m, (x, y, area), arrow in zip(messages, place_labels(arrows, obstacles), arrows):
        parts.append(svg.rectangle(area[0], area[1], area[2] - area[0], area[3] - area[1], svg.PAPER, radius=3,
                                   fill_opacity="0.88"))
        parts.append(svg.text(x, y + 0.36 * LABEL, arrow[4], LABEL, COLOURS[m.source], "middle"))

    y = bottom + (42 if hosts else 36)
    parts += [svg.arrow([(18, y - 4), (50, y - 4)], svg.SOFT, 2, 9),
              svg.text(56, y, "message and its bytes", LABEL, svg.SOFT),
              svg.rectangle(214, y - 11, BAR, 13, svg.SOFT, radius=1.5),
              svg.text(230, y, "local work", LABEL, svg.SOFT),
              svg.circle(324, y - 4, 4, svg.SOFT), svg.text(335, y, "call, result", LABEL, svg.SOFT)]
    if apart:
        parts += [svg.rectangle(430, y - 11, 16, 13, svg.GREY, svg.LANE, 3),
                  svg.text(453, y, "before the call", LABEL, svg.SOFT)]
    return svg.picture(WIDTH, y + 18, figure["title"], describe(figure, ranks, messages, span), parts)
