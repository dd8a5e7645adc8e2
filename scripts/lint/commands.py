#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the commands in pages: blocks of shell parse, each program of the repository that a command names exists, and
each option occurs in the text of the program, or in the sources of the tools and examples that this text names."""

import re
import subprocess

import tree

PROGRAM = re.compile(r"(?<![\w/.-])((?:scripts|tools|bench|examples)/[\w./-]*\w)")
OPTION = re.compile(r"(?<![\w-])--([a-z][\w-]*)")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`((?:scripts|tools|bench)/[^`]+)`(?!`)")


def commands(text):
    """(line, block, command) for each command in a page; `block` is the whole block of shell, or None for text."""
    for match in BLOCK.finditer(text):
        first = text.count("\n", 0, match.start()) + 2
        joined, start = "", 0
        for number, line in enumerate(match[1].split("\n")):
            start = start if joined else number
            joined += line.removesuffix("\\")
            if not line.endswith("\\"):
                yield first + start, match[1], re.sub(r"(^|\s)#.*", "", joined)
                joined = ""
    for match in INLINE.finditer(BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)):
        yield text.count("\n", 0, text.find(match[0])) + 1, None, " ".join(match[1].split())


def parts(command):
    """The command divided at pipes and at separators, so that options follow their program."""
    return re.split(r"\|\||&&|[|;](?=\s)", command)


def options_of(program, read, names):
    """The options in the text of a program, and in the sources of the tools and examples that the text names."""
    words = set(re.findall(r"\w+", read(program)))
    sources = [n for n in names if re.match(r"(tools|examples)/.*\.(cpp|hpp|cu|cuh|py)$", n)
               and (n.split("/")[1].split(".")[0] in words or re.match(r"examples/\w+\.hpp", n))]
    found = set()
    for name in [program, *sources]:
        found.update(one or other for one, other in re.findall(r"--([a-z][\w-]*)|\"([a-z][\w-]*)\"", read(name)))
    return found


def faults(text, read, names):
    """(line, sentence) for each fault of the commands in a page."""
    parsed, known = set(), {}
    for line, block, command in commands(text):
        if block is not None and block not in parsed:
            parsed.add(block)
            shell = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
            if shell.returncode:
                yield line, f"bash cannot parse the block: {shell.stderr.splitlines()[0]}"
        for part in parts(command):
            programs = PROGRAM.findall(part)
            for name in programs:
                if name not in names and not any(n.startswith(name + "/") for n in names):
                    yield line, f"there is no {name}"
            if not part.strip().startswith(("scripts/", "tools/", "bench/")):
                continue
            for name in names & set(programs) - set(known):
                known[name] = options_of(name, read, names)
            options = set().union(*(known[name] for name in programs if name in known))
            own = part.split(" -- ")[0]  # options after -- are those of another program
            for option in OPTION.findall(own) if options else ():
                if option not in options:
                    yield line, f"{programs[0]} has no option --{option}"


def check():
    names = set(tree.files())
    texts = {}

    def read(name):
        if name not in texts:
            texts[name] = tree.text(name)
        return texts[name]

    for page in tree.files(".md"):
        for line, sentence in faults(read(page), read, names):
            yield page, line, sentence


def self_test():
    files = {"scripts/a": "case --ranks) tools/p/main.cpp", "tools/p/main.cpp": 'add_option("--count")'}

    def found(page):
        return [sentence for _, sentence in faults(page, files.get, set(files))]

    yield "rejected good commands", found("```sh\nscripts/a --ranks 2 \\\n  --count 3 # --no\n```\n`scripts/a`") == []
    yield "accepted a missing program", found("```sh\nscripts/b\n```\n") == ["there is no scripts/b"]
    yield "accepted a missing program in text", found("a `scripts/b --ranks`") == ["there is no scripts/b"]
    yield "accepted an option", found("```sh\nscripts/a --hosts\n```\n") == ["scripts/a has no option --hosts"]
    yield "rejected options after --", found("```sh\nscripts/a --ranks 2 -- x --hosts\n```\n") == []
    yield "accepted a prefix of an option", found("`scripts/a --rank`") == ["scripts/a has no option --rank"]
    yield "accepted a block that does not parse", len(found("```sh\nscripts/a 'x\n```\n")) == 1
    yield "wrong line", [line for line, _ in faults("x\n```sh\n:\nscripts/b\n```\n", files.get, set(files))] == [4]


tree.main(check, self_test)
