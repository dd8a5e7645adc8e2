#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles every public member of the headers as a user's program would.

check.py compile COMPILER FLAGS [SOURCE...] [--mpi FOLDERS] [--libzfp]
    compiles the sources (default: all) with -Wall -Wextra -Werror and FLAGS, one argument with blanks
check.py covers COMPILER [--mpi FOLDERS] [--libzfp]
    checks by the symbols of the object files that each public function of the reference is compiled

FOLDERS are the include folders of an MPI library, separated by commas; without them, the sources for MPI are left out.
Without --libzfp, so are the functions that need libzfp. Exit status 1 for a warning or an omission, 77 if doxygen is
missing."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as etree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = ["parts", "any", "fused", "threads", "training", "decorated", "rendezvous", "mpi"]
# Functions that no object file has.
ALLOWED = {
    "accepts": "the compiler calls it",
    "encodings": "the compiler calls it",
    "stream_encodings": "the compiler calls it",
    "additions": "the compiler calls it",
    "literal": "the compiler calls it",
    "pmix_rendezvous": "needs PMIx, and has a test of its own",
    "check_device": "exists only over transports for device memory",
    "make_current": "exists only over transports for device memory",
    "wait_until_idle": "exists only over transports for device memory",
    "path_on_device": "only the headers for devices call it",
}
OPERATORS = ["()", "<=>", "->", "<<", ">>", "<=", ">=", "<", ">"]


def options_of(arguments):
    options = ["-std=c++20", f"-I{ROOT / 'include'}"]
    for folder in filter(None, arguments.mpi.split(",")):
        options += ["-isystem", folder]
    return options + ["-DSPAR_TEST_LIBZFP"] * arguments.libzfp


def compile_sources(arguments):
    """The faults of the sources, as the compiler prints them."""
    sources = [s for s in arguments.sources or SOURCES if s != "mpi" or arguments.mpi]
    faults = ""
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            command = [arguments.compiler, *options_of(arguments), *arguments.flags.split(), "-Wall", "-Wextra",
                       "-Werror", "-c", str(HERE / f"{source}.cpp"), "-o", os.path.join(folder, "program.o")]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                faults += f"{source}.cpp with {arguments.flags}:\n{done.stderr}"
    return faults


def without(text, opening, closing):
    """The text without everything between brackets. A sign between other brackets, as in `f<((1)>(0))>`, is none."""
    out, inside = [], []
    for character in text:
        kept = opening not in inside
        if character in "(<":
            inside.append(character)
        elif character == ")" and "(" in inside:
            while inside.pop() != "(":
                pass
        elif character == ">" and inside[-1:] == ["<"]:
            inside.pop()
        if kept and character not in (opening, closing):
            out.append(character)
    return "".join(out)


def plain(name):
    """A name without template arguments, in which operators are words."""
    for number, operator in enumerate(OPERATORS):
        name = name.replace(f"operator{operator}", f"operator_{number}_")
    name = re.sub(r"\boperator (?!new|delete)[\w: ]+$", "operator_conversion", without(name, "<", ">"))
    return name.replace(" ", "")


def name_of(symbol):
    """The qualified name of the function of a demangled symbol, or None for another symbol."""
    for number, operator in enumerate(OPERATORS):
        symbol = symbol.replace(f"operator{operator}", f"operator_{number}_")
    symbol = without(re.sub(r"\[(abi:|clone )[^\]]*\]", "", symbol), "<", ">")
    if conversion := re.search(r"(spar::[\w:~]*::operator) [^(]*\(", symbol):
        return conversion[1] + "_conversion"
    words = [word for word in without(symbol, "(", ")").split() if word.startswith("spar::")]
    return words[-1] if words else None


def compiled(objects):
    """The names of the functions in the object files."""
    names = set()
    for path in objects:
        lines = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout
        lines = re.sub(r"\bspar::v\d+_\d+::", "spar::", lines).splitlines()
        symbols = (re.match(r"[0-9a-f]* +[WTtwi] (.*)", line) for line in lines)
        names |= {name_of(symbol[1]) for symbol in symbols if symbol and "spar::" in symbol[1]}
    return names


def public_functions(folder):
    """(header, name) of each public function with a body in doxygen's XML, except those for devices."""
    for path in Path(folder).glob("*.xml"):
        for scope in etree.parse(path).getroot().findall("compounddef"):
            if scope.get("kind") not in ("class", "struct", "namespace"):
                continue
            for member in scope.iter("memberdef"):
                header = member.find("location").get("file").split("include/")[-1]
                bodiless = re.search(r"=\s*(delete|default|0)\s*$", member.findtext("argsstring") or "")
                if member.get("kind") != "function" or member.get("prot") != "public" or bodiless:
                    continue
                if re.search(r"cuda|nccl|\.cuh$", header):
                    continue
                yield header, plain(f"{scope.findtext('compoundname')}::{member.findtext('name')}")


def all_headers(arguments):
    """A source with all headers that need neither a device nor PMIx, whose inline functions the compiler keeps."""
    for path in sorted((ROOT / "include").rglob("*.hpp")):
        name = path.relative_to(ROOT / "include").as_posix()
        needs_mpi = re.search(r"/mpi[^/]*$|/mpi/", name)
        needs_libzfp = "zfp_field" in name
        if not (re.search(r"cuda|/nccl|_json|/pmix", name) or (needs_mpi and not arguments.mpi)
                or (needs_libzfp and not arguments.libzfp)):
            yield f"#include <{name}>\n"


def omissions(arguments):
    """(header, name) of each public function that no source compiles."""
    subprocess.run(["scripts/docs", "--comments"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        headers = os.path.join(folder, "headers.cpp")
        Path(headers).write_text("".join(all_headers(arguments)), encoding="utf-8")
        sources = [headers, *(str(HERE / f"{s}.cpp") for s in SOURCES if s != "mpi" or arguments.mpi)]

        def object_of(source):
            out = os.path.join(folder, Path(source).stem + ".o")
            subprocess.run([arguments.compiler, *options_of(arguments), "-O0", "-fkeep-inline-functions", "-w", "-c",
                            source, "-o", out], check=True)
            return out

        with ThreadPoolExecutor(2) as pool:
            names = compiled(pool.map(object_of, sources))
    found = 0
    for header, name in sorted(set(public_functions(ROOT / "build/docs/comments/xml"))):
        found += 1
        without = (not arguments.mpi and "mpi" in header) or (not arguments.libzfp and "zfp_field" in header)
        if name not in names and name.split("::")[-1] not in ALLOWED and "_json" not in header and not without:
            yield header, name
    if found < 500:
        yield "include/spar", f"only {found} functions in doxygen's XML"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["compile", "covers"])
    parser.add_argument("compiler")
    parser.add_argument("flags", nargs="?", default="")
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--mpi", default="")
    parser.add_argument("--libzfp", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "compile":
        faults = compile_sources(arguments)
        print(faults, end="")
        sys.exit(1 if faults else 0)
    if not shutil.which("doxygen"):
        print("skipped: no doxygen")
        sys.exit(77)
    left_out = list(omissions(arguments))
    for header, name in left_out:
        print(f"{header}: no source of tests/every_member compiles {name}")
    sys.exit(1 if left_out else 0)


if __name__ == "__main__":
    main()
