#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Declared names: no generic words in the namespace spar itself, and none of the words that the glossary replaced.
Variables of the environment that headers, the library and the tools read: docs/stability.md names those of spar, and
it or docs/guide/ranks.md those of others that headers read.

names.py --list prints every name that is declared in the namespace spar.
"""

import re
import sys

import tree

# Words that say nothing in a namespace that programs open: they belong to a class, to `detail`, or get a better name.
GENERIC = """start run wait fail check split join problem begin end open close read write load store make get set put
apply process handle init reset update data value values result state status info node item object util helper
manager""".split()
# Words of no field, each with the field's term.
REPLACED = {
    "held_back": "backlog",
    "held_values": "value_backlog",
    "held_stream": "stream_backlog",
    "finishing": "finalize",
    "turns": "rank_mutex",
    "mix": "splitmix",
    "inquiry": "peer_query",
    "listener": "control_subscribers",
    "listeners": "control_subscribers",
    "coded_pieces": "encode_pipeline",
    "due": "target, expected or deadline",
    "heed": "on_control_message",
    "lent": "loan",
    "tell": "broadcast",
    "told": "notified",
    "owed": "backlog",
    "left_lent": "begin_loan",
}

def declarations(source):
    """(line, name) for each name declared in the namespace spar itself: not in a class, a function or `detail`."""
    code = re.sub(r"^[ \t]*#[^\n]*(\\\n[^\n]*)*", lambda m: "\n" * m.group().count("\n"),
                  tree.code(tree.unversioned(source)), flags=re.M)
    scopes, parentheses, statement = [], 0, []
    for match in re.finditer(r"[A-Za-z_]\w*|::|[{}()\[\];=<>,:]", code):
        token, line = match.group(), code[: match.start()].count("\n") + 1
        if token in "([":
            parentheses += 1
        elif token in ")]":
            parentheses -= 1
        if token == "}":
            if scopes:
                scopes.pop()
            statement = []
            continue
        if token == "{":
            words = [w for w, _ in statement]
            if words[:1] == ["namespace"]:
                scopes.append("::".join(w for w in words[1:] if w != "::"))
            else:
                if scopes == ["spar"]:
                    yield from declared(statement)
                scopes.append(None)
            statement = []
            continue
        if token == ";" and parentheses == 0:
            if scopes == ["spar"]:
                yield from declared(statement)
            statement = []
            continue
        if parentheses == 0 or token == "(":
            statement.append((token, line))


def declared(statement):
    """The name that one declaration declares: of a type, a concept, an alias, a function or a variable."""
    words = [w for w, _ in statement]
    if not words or words[0] in ("friend", "using") and "=" not in words or words[0] == "static_assert":
        return
    # What stands before `template <...>` of its own is over at the matching bracket.
    depth = 0
    if words[0] == "template":
        for at, word in enumerate(words[1:], 1):
            depth += {"<": 1, ">": -1}.get(word, 0)
            if depth == 0:
                break
        yield from declared(statement[at + 1 :])
        return
    if words[:2] == ["requires", "("]:  # its parentheses are empty here
        statement, words = statement[2:], words[2:]
    for keyword in ("concept", "using", "struct", "class", "enum", "union"):
        if keyword in words[:3]:
            rest = [s for s in statement[words.index(keyword) + 1 :] if s[0] not in ("class", "struct", "alignas")]
            names = [s for s in rest if re.match(r"[A-Za-z_]", s[0])]
            if names and "operator" not in words:
                yield names[0][1], names[0][0]
            return
    if "operator" in words or "(" not in words:
        if "=" in words and words.index("=") > 0:
            name = statement[words.index("=") - 1]
            yield name[1], name[0]
        return
    # A function: the word before its parameters, unless a member is defined out of its class. A clause such as
    # `requires (...)` or `noexcept(...)` has parentheses, too.
    for at, word in enumerate(words):
        if word == "(" and at > 0 and words[at - 1] not in ("requires", "noexcept", "decltype", "alignas", "explicit"):
            if re.match(r"[A-Za-z_]", words[at - 1]) and (at < 2 or words[at - 2] != "::"):
                yield statement[at - 1][1], words[at - 1]
            return


def faults(source):
    """(line, sentence) for one header."""
    for line, name in declarations(source):
        if name in GENERIC:
            yield line, f"spar::{name} is a generic word: it belongs to a class or to detail, or needs a better name"
    for number, line in enumerate(tree.code(source).split("\n"), 1):
        for word in re.findall(r"[A-Za-z_]\w*", line):
            if word in REPLACED:
                yield number, f"{word} is no term of the field: {REPLACED[word]}"


def variables(source):
    """(line, name) for each variable of the environment that C++ code reads: what it passes to getenv or, if it passes
    something else than a literal, each literal that may be the name of a variable."""
    source = re.sub(r"//[^\n]*", "", source)
    names = r'getenv\("(\w+)"'
    if re.search(r"getenv\([^\")]", source):
        names = r'"([A-Z][A-Z0-9_]{3,})"'
    for match in re.finditer(names, source):
        yield source[: match.start()].count("\n") + 1, match.group(1)


def undocumented(variable, of_header, stability, ranks):
    """The sentence about a variable that no page has; None if one has it."""
    if not variable.startswith("SPAR_"):
        pages, where = (stability + ranks if of_header else variable), "docs/guide/ranks.md or docs/stability.md"
    else:
        pages, where = stability, "docs/stability.md"
    return None if re.search(rf"\b{variable}\b", pages) else f"{variable} is read, but {where} does not name it"


def check():
    for name in tree.files(".hpp", ".cuh", under="include/"):
        for line, sentence in faults(tree.text(name)):
            yield name, line, sentence
    stability, ranks = tree.text("docs/stability.md"), tree.text("docs/guide/ranks.md")
    for folder in "include/", "src/", "tools/":
        for name in tree.files(*tree.CPP, under=folder):
            for line, variable in variables(tree.text(name)):
                sentence = undocumented(variable, folder == "include/", stability, ranks)
                if sentence:
                    yield name, line, sentence


def self_test():
    inside = "namespace spar::inline v0_1 {{\n{}\n}} // namespace spar\n".format
    generic = [
        "void run();",
        "template <class T>\nauto wait(T& x) noexcept(noexcept(x.y())) -> int {\n  return 1;\n}",
        "struct problem {};",
        "template <class T>\n  requires (sizeof(T) > 1)\nconstexpr int split(T) { return 1; }",
        "inline constexpr int value = 1;",
        "enum class state { on };",
        "template <class T>\nconcept check = sizeof(T) > 1;",
        "using result = int;",
    ]
    for source in generic:
        yield f"accepted: {source}", len(list(faults(inside(source)))) == 1
    allowed = [
        "struct timer {\n  void start();\n  int value = 1;\n};",
        "namespace detail {\nvoid run();\n}",
        "void timer::start() {\n  run();\n}",
        "void f(int value, double result = check(1));",
        "// run();\n",
    ]
    for source in allowed:
        yield f"refused: {source}", not list(faults(inside(source)))
    read = [name for _, name in variables('// getenv("SPAR_A")\nstd::getenv("SPAR_B"); f("SPAR_C");')]
    yield f"variables in literals: {read}", read == ["SPAR_B"]
    read = list(variables('std::getenv(variable);\nf("SPAR_C", "abc");'))
    yield f"variables in a table: {read}", read == [(2, "SPAR_C")]
    for variable, of_header, refused in [("SPAR_A", True, False), ("SPAR_B", True, True), ("SPAR_A_B", False, True),
                                         ("RANK", True, False), ("OTHER", True, True), ("OTHER", False, False)]:
        sentence = undocumented(variable, of_header, "`SPAR_A`", "SPAR_B, RANK")
        yield f"{variable}: {sentence}", refused == (sentence is not None)
    yield "accepted: a replaced word", len(list(faults(inside("void f() { int due = 1; }")))) == 1
    yield "refused: a replaced word in a comment", not list(faults(inside("void f(); // due")))


if __name__ == "__main__":
    if "--list" in sys.argv[1:]:
        everything = {d[1] for n in tree.files(".hpp", under="include/") for d in declarations(tree.text(n))}
        print("\n".join(sorted(everything)))
    else:
        tree.main(check, self_test)
