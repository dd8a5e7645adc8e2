#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Includes go down only: a folder of include/spar is a layer and includes itself and the layers below."""

import re

import tree

LEVEL = {
    "core": 0,
    "transport": 1,
    "storage": 1,
    "topology": 1,
    "selector": 2,
    "model": 2,
    "collective": 3,
    "cuda": 4,
    "optimizer": 5,
    "system": 6,
}
# Headers directly under include/spar stand above every layer; what may name a library from outside, by layer and name.
OUTSIDE = {
    r"mpi\.h": r"^(transport/mpi[^/]*|mpi\.hpp)$",
    r"nccl\.h": r"^transport/nccl",
    r"cuda.*|cub/.*|thrust/.*": r"^(cuda/|transport/nccl)",
    r"zfp.*": r"^storage/zfp",
    r"nlohmann/.*": r"^(topology/tree|collective/plan)_json\.hpp$",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def layer_of(header):
    return header.split("/")[0] if "/" in header else None


def violations(header, source):
    """(line, sentence) for each include of `header` (relative to include/spar) that goes up, sideways or outside."""
    own = layer_of(header)
    if own is not None and own not in LEVEL:
        yield 1, f"the folder {own} is no layer of the design"
        return
    for match in INCLUDE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        quote, target = match.groups()
        if quote == '"':
            yield line, f'"{target}" is included with quotes; write <spar/...>'
            continue
        if not target.startswith("spar/"):
            for library, allowed in OUTSIDE.items():
                if re.fullmatch(library, target) and not re.search(allowed, header):
                    yield line, f"<{target}> belongs behind a header of its own"
            continue
        if own is None:
            continue
        other = layer_of(target[len("spar/"):])
        if other is None:
            yield line, f"{own} includes <{target}>, which stands above all layers"
        elif other != own and LEVEL.get(other, 99) >= LEVEL[own]:
            yield line, f"{own} includes <{target}>: {other} is not below {own}"


def check():
    for name in tree.files(".hpp", ".cuh", under="include/spar/"):
        # Comments may show an include; string literals are what an include consists of, so only comments go.
        source = re.sub(r"//[^\n]*", "", tree.text(name))
        for line, sentence in violations(name[len("include/spar/"):], source):
            yield name, line, sentence


def self_test():
    bad = {
        "core includes a transport": ("core/a.hpp", "#include <spar/transport/sim.hpp>\n"),
        "storage includes a sibling layer": ("storage/a.hpp", "#include <spar/transport/sim.hpp>\n"),
        "a collective includes a system": ("collective/a.hpp", "#include <spar/system/sparcml.hpp>\n"),
        "a layer includes spar.hpp": ("model/a.hpp", "#include <spar/spar.hpp>\n"),
        "quotes": ("core/a.hpp", '#include "error.hpp"\n'),
        "mpi.h outside its transport": ("collective/a.hpp", "#  include <mpi.h>\n"),
        "an unknown folder": ("misc/a.hpp", "#include <vector>\n"),
    }
    good = {
        "own layer": ("storage/a.hpp", "#include <spar/storage/coo.hpp>\n#include <spar/core/error.hpp>\n"),
        "top header": ("spar.hpp", "#include <spar/system/sparcml.hpp>\n"),
        "mpi.h in its transport": ("transport/mpi.hpp", "#include <mpi.h>\n#include <vector>\n"),
        "system includes all": ("system/a.hpp", "#include <spar/model/cost.hpp>\n#include <spar/optimizer/sgd.hpp>\n"),
    }
    for what, (header, source) in bad.items():
        yield f"accepted: {what}", len(list(violations(header, source))) == 1
    for what, (header, source) in good.items():
        yield f"refused: {what}", not list(violations(header, source))


tree.main(check, self_test)
