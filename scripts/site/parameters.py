#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""parameters.py XML: checks doxygen's XML: the comment of every public function names each of its parameters, as code.
Parameters without a name, and those of the members that every part of a composition has, need no mention."""

import re
import sys
import xml.etree.ElementTree as etree
from pathlib import Path

# The notation of all comments (docs/glossary.md), and names that say all: the rank that calls, the operation, the
# function that is called, the memory from which results are allocated.
USUAL = {"n", "k", "ranks", "net", "op", "f", "args", "other", "memory"}
# Arguments of the coroutines of schedules, which collective/algorithm.hpp explains.
PROTOCOL = {"x", "mine", "over", "store", "residual", "root", "absent"}


def code_words(element):
    """All identifiers in the code of a comment."""
    return {word for code in element.iter("computeroutput") for word in re.findall(r"\w+", "".join(code.itertext()))}


def faults(root):
    """(place, sentence) for each parameter without a mention, in the XML of one compound."""
    for compound in root.iter("compounddef"):
        about = " ".join("".join(text.itertext()) for text in compound.findall("briefdescription")
                         + compound.findall("detaileddescription"))
        shared = {}  # the words of the comment that an overload refers to
        for member in compound.iter("memberdef"):
            if member.get("kind") != "function" or member.get("prot") != "public":
                continue
            name = member.findtext("name")
            texts = [member.find(part) for part in ("briefdescription", "detaileddescription")]
            words = set().union(*(code_words(text) for text in texts))
            prose = about + " ".join("".join(text.itertext()) for text in texts)
            if "This is an overloaded member function" in prose:
                words |= shared.get(name, set())
            if re.search("Called by|Part of the interface", prose):
                continue
            if "channel" in (member.findtext("argsstring") or ""):
                words |= PROTOCOL
            shared[name] = shared.get(name, set()) | words
            for parameter in member.findall("param"):
                called = parameter.findtext("declname")
                if called and called not in USUAL and called not in words and not re.search(rf"\b{called}\b", prose):
                    place = member.find("location")
                    yield f"{place.get('file')}:{place.get('line')}", f"the comment of {name} does not name `{called}`"


if __name__ == "__main__":
    found = sorted({f"{place}: {sentence}" for file in Path(sys.argv[1]).glob("*.xml")
                    for place, sentence in faults(etree.parse(file).getroot())})
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
