#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the layers of include/spar: each folder is a layer, and its headers may include only the same layer and lower
ones. The subfolders of a layer also have levels. The map in CONTRIBUTING.md names the layers in order, and each folder,
and no header that does not exist. Advises that a folder has 2 to 16 headers."""

import collections
import re

import tree

LEVEL = {
    "core": 0,
    "runtime": 1,
    "rendezvous": 1,
    "cuda": 2,
    "transport": 3,
    "storage": 3,
    "topology": 3,
    "model": 4,
    "workspace": 4,
    "selector": 5,
    "collective": 6,
    "cuda/kernel": 7,  # a layer of its own: kernels use storage, and the transport nccl uses cuda
    "optimizer": 8,
    "cuda/values": 8,
    "system": 9,
}
# The levels of the subfolders of a layer; headers directly in the layer have the level of "".
WITHIN = {
    "core": {"": 0, "util": 1, "memory": 2, "policy": 2},
    "rendezvous": {"tcp": 0, "": 1},
    "runtime": {"tasks": 0, "messages": 1, "endpoint": 2, "": 3},
    "transport": {"mpi": 0, "sim": 0, "nccl": 0, "ucx": 0, "": 1},
    "storage": {"kernel/zfp": 0, "kernel": 1, "": 2},
    "collective": {"": 0, "wire": 1, "basic": 2, "compressed": 3, "allreduce": 4, "topk/pruned": 5, "tree": 5,
                   "partial": 5, "topk": 6},
    "system": {"": 0, "text": 1, "any": 2},
}
MOST_HEADERS = 16
MAP = "CONTRIBUTING.md"
VERSION = "spar/version.hpp"  # belongs to no layer
# The headers that may include an external library. Headers directly in include/spar are above every layer.
OUTSIDE = {
    r"mpi\.h": r"^(transport/mpi(/[^/]*)?(\.hpp)?|(any_)?mpi\.hpp)$",
    r"pmix.*": r"^pmix\.hpp$",
    r"nccl\.h": r"^transport/nccl",
    r"ucp/.*": r"^(transport/ucx(/[^/]*)?(\.hpp)?|ucx\.hpp)$",
    r"cuda.*|cub/.*|thrust/.*": r"^(cuda/|transport/nccl)",
    r"nlohmann/.*": r"^topology/(tree|flex_plan)_json\.hpp$",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def layer_of(header):
    """The folder of LEVEL that contains a header; None if the header is directly in include/spar."""
    folder = header.rpartition("/")[0]
    return folder if folder in LEVEL else folder.split("/")[0] or None


def room_of(header):
    """The subfolder of the layer that contains a header; "" if the header is directly in the layer."""
    return header.rpartition("/")[0].removeprefix(layer_of(header) or "").lstrip("/")


def violations(header, source):
    """(line, sentence) for each include in `header` (relative to include/spar) of a layer that is not lower, or of an
    external library that the header must not include."""
    own = layer_of(header)
    if own is not None and own not in LEVEL:
        yield 1, f"the folder {own} is not a layer: add it to LEVEL"
        return
    if own is not None and room_of(header) not in WITHIN.get(own, {"": 0}):
        yield 1, f"the folder {own}/{room_of(header)} has no level within {own}: add it to WITHIN"
        return
    for match in INCLUDE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        quote, target = match.groups()
        if quote == '"':
            yield line, f'"{target}" is included with quotes, expected <spar/...>'
            continue
        if not target.startswith("spar/"):
            for library, allowed in OUTSIDE.items():
                if re.fullmatch(library, target) and not re.search(allowed, header):
                    yield line, f"this header must not include <{target}>; see OUTSIDE for the headers that may"
            continue
        if own is None or target == VERSION:
            continue
        other = layer_of(target[len("spar/"):])
        if other is None:
            yield line, f"{own} includes <{target}>, which is above all layers"
        elif other != own and LEVEL.get(other, 99) >= LEVEL[own]:
            yield line, f"{own} includes <{target}>: {other} is not below {own}"
        elif other == own:
            levels, from_room, to_room = WITHIN.get(own, {"": 0}), room_of(header), room_of(target[len("spar/"):])
            if to_room != from_room and levels.get(to_room, 99) >= levels[from_room]:
                yield line, f"{own}/{from_room} includes <{target}>: {own}/{to_room} is not below {own}/{from_room}"


def folders_of(names):
    """The headers of each folder."""
    folders = collections.defaultdict(list)
    for name in names:
        folders[name.rpartition("/")[0]].append(name)
    return folders


def unusual(names):
    """(name of a header in the folder, sentence) for each folder with too many headers, or with a single one."""
    for folder, headers in folders_of(names).items():
        if not 2 <= len(headers) <= MOST_HEADERS:
            yield headers[0], f"{folder} contains {len(headers)} headers, expected 2 to {MOST_HEADERS}"


def order():
    """The layers from the lowest, as the map shows them."""
    levels = collections.defaultdict(list)
    for layer, level in LEVEL.items():
        levels[level].append(layer)
    groups = [levels[level] for level in sorted(levels)]
    return " <- ".join(group[0] if len(group) == 1 else f"{{{', '.join(group)}}}" for group in groups)


def map_faults(text, folders):
    """(line, sentence) for each difference between the map `text` and the layers, and for each folder without a row."""
    block = re.search(r"^```\n(core <-.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if not block or " ".join(block[1].split()) != order():
        line = text.count("\n", 0, block.start(1) if block else 0) + 1
        yield line, f"the layers differ from LEVEL, expected: {order()}"
    rows = {}
    for number, line in enumerate(text.splitlines(), 1):
        rows |= {folder: number for folder in re.findall(r"`([a-z_/]+)/`", re.match(r"(\| [^|]* )?", line)[0])}
    for folder in sorted(folders - set(rows)):
        yield 1, f"the map has no row for the folder {folder}/"
    for folder in sorted(set(rows) - folders):
        yield rows[folder], f"the folder {folder}/ contains no header"


def missing(text, headers):
    """(line, sentence) for each name in `text` of a header in a layer that is not among `headers`."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(r"`([a-z_]+/[a-z_/]+\.(?:hpp|cuh))`", line):
            if layer_of(name) in LEVEL and f"include/spar/{name}" not in headers:
                yield number, f"there is no header {name}"


def check():
    headers = tree.files(".hpp", ".cuh", under="include/spar/")
    for name, sentence in unusual(headers):
        tree.advise(name, 1, sentence)
    folders = {folder.removeprefix("include/spar").lstrip("/") for folder in folders_of(headers)} - {""}
    text = tree.text(MAP)
    for line, sentence in (*map_faults(text, folders), *missing(text, headers)):
        yield MAP, line, sentence
    for name in headers:
        # Remove comments, which may show an include, but keep string literals, which are part of includes.
        source = re.sub(r"//[^\n]*", "", tree.text(name))
        for line, sentence in violations(name[len("include/spar/"):], source):
            yield name, line, sentence


def self_test():
    bad = {
        "core includes a transport": ("core/a.hpp", "#include <spar/transport/sim.hpp>\n"),
        "storage includes a sibling layer": ("storage/a.hpp", "#include <spar/transport/sim.hpp>\n"),
        "a collective includes a system": ("collective/a.hpp", "#include <spar/system/collectives.hpp>\n"),
        "a layer includes spar.hpp": ("model/a.hpp", "#include <spar/spar.hpp>\n"),
        "quotes": ("core/a.hpp", '#include "error.hpp"\n'),
        "mpi.h outside its transport": ("collective/a.hpp", "#  include <mpi.h>\n"),
        "an unknown folder": ("misc/a.hpp", "#include <vector>\n"),
        "an unknown subfolder": ("core/misc/a.hpp", "#include <vector>\n"),
        "a subfolder includes one above it": ("runtime/tasks/a.hpp", "#include <spar/runtime/channel.hpp>\n"),
        "a subfolder includes its sibling": ("collective/tree/a.hpp", "#include <spar/collective/partial/a.hpp>\n"),
    }
    good = {
        "the version": ("core/a.hpp", "#include <spar/version.hpp>\n"),
        "own layer": ("storage/a.hpp", "#include <spar/storage/coo.hpp>\n#include <spar/core/error.hpp>\n"),
        "top header": ("spar.hpp", "#include <spar/system/collectives.hpp>\n"),
        "mpi.h in its transport": ("transport/mpi.hpp", "#include <mpi.h>\n#include <vector>\n"),
        "system includes all": ("system/a.hpp", "#include <spar/model/cost.hpp>\n#include <spar/optimizer/sgd.hpp>\n"),
    }
    shown, rows = f"```\n{order()}\n```\n", "| `core/`, `core/util/` | elements of `model/` |\n"
    folders = {"core", "core/util"}
    yield "rejected the map", not list(map_faults(shown.replace("collective", "\n  collective") + rows, folders))
    yield "accepted another order", len(list(map_faults(shown.replace("selector <- ", "") + rows, folders))) == 1
    yield "accepted a folder without a row", len(list(map_faults(shown + rows, folders | {"model"}))) == 1
    yield "accepted a row without a folder", len(list(map_faults(shown + rows, {"core"}))) == 1
    one = ["include/spar/core/a.hpp"]
    yield "accepted a header that does not exist", len(list(missing("`core/a.hpp`, `core/b.hpp`", one))) == 1
    yield "rejected another file", not list(missing("`tests/a.hpp`, `a.hpp`", []))
    yield "no advice on 17 headers", len(list(unusual([f"a/{i}.hpp" for i in range(17)]))) == 1
    yield "no advice on 1 header", len(list(unusual(["a/b/c.hpp", "a/1.hpp", "a/2.hpp"]))) == 1
    yield "advice on 16 headers", not list(unusual([f"a/{i}.hpp" for i in range(16)]))
    for what, (header, source) in bad.items():
        yield f"accepted an invalid header: {what}", len(list(violations(header, source))) == 1
    for what, (header, source) in good.items():
        yield f"rejected a valid header: {what}", not list(violations(header, source))


if __name__ == "__main__":
    tree.main(check, self_test)
