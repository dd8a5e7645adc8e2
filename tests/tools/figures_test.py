#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the pictures of docs/concepts.md with what scripts/figures draws now, byte for byte, and checks that a
changed trace or layer changes its picture.

tests/tools/figures_test.py EXCHANGES
"""

import copy
import json
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "figures"))
import diagrams
import exchanges

SVG = "{http://www.w3.org/2000/svg}"
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def messages(figure, kind):
    return [e for e in figure["trace"] if e.get("cat") == kind]


traces = json.loads(subprocess.run([sys.argv[1]], capture_output=True, check=True, text=True).stdout)
page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
pictures = {figure["name"]: exchanges.draw(figure) for figure in traces} | diagrams.draw()
expect(len(pictures) == len(traces) + 4, "two pictures have the same name")
for name, picture in pictures.items():
    file = ROOT / "docs" / "pictures" / f"{name}.svg"
    current = file.is_file() and file.read_text(encoding="utf-8") == picture
    expect(current, f"docs/pictures/{name}.svg is out of date: run scripts/figures, and read docs/concepts.md again")
    expect(f"(pictures/{name}.svg)" in page, f"docs/concepts.md does not show pictures/{name}.svg")
    expect(len(picture.encode()) < 40_000, f"{name}.svg has {len(picture.encode())} bytes, expected less than 40000")
    root = xml.fromstring(picture)
    for tag in ("title", "desc"):
        expect(len(root.findtext(SVG + tag) or "") > 3, f"{name}.svg has no {tag}")

for figure in traces:
    name = figure["name"]
    sent, arrived = messages(figure, "send"), messages(figure, "receive")
    expect(len(sent) == len(arrived) > 0, f"{name}: {len(sent)} messages are sent, and {len(arrived)} arrive")
    root = xml.fromstring(pictures[name])
    heads = len(root.findall(SVG + "polygon"))
    expect(heads == len(sent) + 1, f"{name}.svg has {heads} arrows, expected {len(sent)} messages and the legend")
    total = sum(e["args"]["bytes"] for e in sent)
    expect(f"{len(sent)} messages with {total} bytes" in root.findtext(SVG + "desc"), f"{name}.svg: wrong totals")

    longer = copy.deepcopy(figure)
    size = messages(longer, "send")[0]["args"]["bytes"]
    for kind in ("send", "receive"):
        for event in messages(longer, kind):
            event["args"]["bytes"] += 4 * (event["args"]["bytes"] == size)
        try:
            changed = exchanges.draw(longer)
            expect(kind == "receive", f"{name}: drew messages that arrive with fewer bytes than they have when sent")
            expect(changed != pictures[name], f"{name}: messages with 4 bytes more draw the same picture")
        except ValueError as error:
            expect(kind == "send", f"{name}: rejected a valid trace: {error}")

diagrams.layers.LEVEL["selector"] = diagrams.layers.LEVEL["collective"]
expect(diagrams.draw()["layers"] != pictures["layers"], "another level of a layer draws the same picture")
sys.exit(1 if failures else 0)
