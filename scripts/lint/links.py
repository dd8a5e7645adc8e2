#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the links of the pages in the repository: each leads to a file or folder, and to a heading of a page; each
picture has alternative text; each page has one title, and each page in docs/ is in the navigation of mkdocs.yml.
scripts/docs checks the pages that it makes of them."""

import posixpath
import re

import tree

FENCE = re.compile(r"^( *```).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s]+(?:\([^()]*\))?)\)")
HEADING = re.compile(r"^(#+) +(.*)$", re.MULTILINE)


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def anchors(text):
    """The anchors of the headings of a page, as GitHub and the site name them."""
    found = {}
    for _, heading in HEADING.findall(FENCE.sub(blank, text)):
        heading = re.sub(r"\]\([^)]*\)", "", heading).lower()
        name = re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {name if i == 0 else f"{name}-{i}" for name, last in found.items() for i in range(last + 1)}


def faults(name, read, names):
    """(line, sentence) for each fault of the page `name`."""
    text = FENCE.sub(blank, read(name))
    titles = [m for m in HEADING.finditer(text) if m[1] == "#"]
    if name.startswith("docs/") and len(titles) != 1:
        yield 1, f"page with {len(titles)} titles, expected 1"
    # Text in backticks may be the text of a link, but contains no link.
    for match in LINK.finditer(CODE.sub(lambda m: m[0].replace("(", " ").replace("]", " "), text)):
        line = text.count("\n", 0, match.start()) + 1
        picture, words, target = match.groups()
        if picture and not words.strip():
            yield line, "picture without alternative text"
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        if to.startswith("docs/api/"):  # the reference, which doxygen writes
            continue
        if to not in names and not any(n.startswith(to + "/") for n in names):
            yield line, f"link to {target}, which does not exist"
        elif anchor and to.endswith(".md") and anchor not in anchors(read(to)):
            yield line, f"link to {target}, a heading that does not exist"


def check():
    names = set(tree.files())
    for page in tree.files(".md"):
        for line, sentence in faults(page, tree.text, names):
            yield page, line, sentence
    navigation = set(re.findall(r"[\w/-]+\.md", tree.text("mkdocs.yml")))
    for page in tree.files(".md", under="docs/"):
        if page.removeprefix("docs/") not in navigation:
            yield "mkdocs.yml", 1, f"the navigation lacks {page}"


def self_test():
    def found(**pages):
        files = {f"docs/{name}.md": text for name, text in pages.items()}
        return [sentence for name in files for _, sentence in faults(name, files.get, set(files))]

    good = "# A `b`, c-d\n\n[x](b.md#two-words) [y](#a-b-c-d) ![p](b.md) [e](https://a.org)\n```\n# [no](x.md)\n```\n"
    yield "rejected good pages", found(a=good, b="# B\n\n## Two words\n") == []
    yield "a missing file", found(a="# A\n[x](c.md)") == ["link to c.md, which does not exist"]
    yield "a missing heading", found(a="# A\n[x](#b)") == ["link to #b, a heading that does not exist"]
    yield "the second of equal headings", found(a="# A\n## B\n## B\n[x](#b-1)") == []
    yield "no alternative text", found(a="# A\n![](a.md)") == ["picture without alternative text"]
    yield "no title", found(a="text") == ["page with 0 titles, expected 1"]
    yield "a link after code", found(a="# A\n`x[1](2)` [`y`](c.md)") == ["link to c.md, which does not exist"]


tree.main(check, self_test)
