#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Identifiers of headers that well-known headers of others define as macros: a program that includes such a header
before one of spar would not compile.

The lists have no `min` and `max`, which windows.h defines unless NOMINMAX is defined, because with them the standard
library is hard to use, too; and no macros that only give a name another one, such as those of R (`error` becomes
`Rf_error`), because they rename the identifier everywhere.
"""

import re

import tree

# Macros without parameters: no identifier of a header may have such a name.
OBJECTS = {
    "Qt": "signals slots emit foreach forever",
    "Windows": """near far small hyper interface pascal cdecl NEAR FAR IN OUT OPTIONAL CALLBACK WINAPI APIENTRY PASCAL
        ERROR NO_ERROR DELETE BOOL TRUE FALSE CONST VOID THIS STRICT INFINITE IGNORE ABSOLUTE RELATIVE TRANSPARENT
        OPAQUE DIFFERENCE GetMessage SendMessage CreateWindow GetObject GetCurrentTime DrawText""",
    "macOS": "nil Nil YES NO PAGE_SIZE",
    "X11": """None Bool Status True False Success Always ParentRelative CopyFromParent PointerWindow InputFocus
        PointerRoot AnyKey AnyButton CurrentTime NoSymbol KeyPress KeyRelease ButtonPress Expose Above Below Opposite
        Nonconvex Convex Complex Unsorted DirectColor FillSolid GrayScale DestroyAll""",
    "C and POSIX": "I complex imaginary DOMAIN OVERFLOW UNDERFLOW SING linux unix i386 ECHO BUFSIZ",
    "R": "PI Free Calloc Realloc Memcpy",
    "GLib and sys/param.h": "MIN MAX ABS CLAMP",
    "curses": "ERR OK",
}
# Macros with parameters: no header may have the name before a parenthesis.
FUNCTIONS = {
    "macOS": """check check_noerr check_string ncheck verify verify_noerr verify_string nverify require require_noerr
        require_action require_quiet nrequire""",
    "Windows": "Yield",
    "C and POSIX": "assert major minor makedev signbit isfinite isinf isnan isnormal fpclassify",
    "logging libraries": "CHECK REQUIRE ASSERT EXPECT LOG FAIL INFO WARN",
}
IDENTIFIER = re.compile(r"(?<![\w#])([A-Za-z_]\w*)(\s*\()?")


def owners(lists):
    return {word: owner for owner, words in lists.items() for word in words.split()}


def faults(source):
    """(line, sentence) for each identifier that a header of others may have defined as a macro."""
    objects, functions = owners(OBJECTS), owners(FUNCTIONS)
    for number, line in enumerate(tree.code(source).split("\n"), 1):
        if re.match(r"\s*#\s*include\b", line):
            continue
        for word, called in IDENTIFIER.findall(line):
            owner = objects.get(word) or (functions.get(word) if called else None)
            if owner:
                yield number, f"{word} is a macro in headers of {owner}: use another name"


def check():
    for name in tree.files(".hpp", ".cuh", under="include/"):
        for line, sentence in faults(tree.text(name)):
            yield name, line, sentence


def self_test():
    refused = ["int slots = 1;", "void f(int near);", "x.check(1);", "bool check (int);", "enum { None };",
               "assert(true);", "#define SPAR_X small", "template <class I>"]
    for source in refused:
        yield f"accepted: {source}", len(list(faults(source))) == 1
    allowed = ["int slots_ = 1;", "// slots near check(1)", 'f("slots");', "auto check = 1;", "x.checks(1);",
               "#include <assert.h>", "std::min(1, 2);", "static_assert(true);"]
    for source in allowed:
        yield f"refused: {source}", not list(faults(source))


tree.main(check, self_test)
