#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks rules that avoid a bug of g++ 12: it destroys some temporaries of a full expression with co_await twice.

  list       no co_await inside an initializer list
  binding    no structured binding directly on co_await
  lambda     no coroutine that is a lambda with captures (the closure may be destroyed before the coroutine resumes)
  temporary  no braced temporary, and no lambda that captures by copy, in a full expression with co_await

Braced temporaries of fundamental types, of types whose name ends in _t, of std::span and of operations are harmless.
The comment `coroutine-lint: trivial` on a line declares that the type on this line is trivially destructible. The lint
reads tokens, not types: it finds the usual ways to break the rules, and proves nothing.
"""

import re

import tree

TOKEN = re.compile(r"\[\[|\]\]|->|::|&&|==|<=|>=|!=|[A-Za-z_]\w*|\d[\w.']*|\"\"|\S")
WORD = re.compile(r"[A-Za-z_]\w*$")
COROUTINE = {"co_await", "co_return", "co_yield"}
KEYWORDS = COROUTINE | {"return", "else", "throw", "case", "new", "delete", "sizeof", "do"}
HARMLESS = re.compile(r"(\w+_t|bool|char|short|int|long|unsigned|float|double|byte|span|sum|product|minimum|maximum)$")
VOUCH = "coroutine-lint: trivial"
CANARY = "tests/runtime/coroutine_canary_test.cpp"  # breaks the rules to test the compiler
BLOCK_AFTER = {None, ";", "{", "}", ")", ":", "]]", '""', "&&", "&", "...", "else", "do", "try", "const", "noexcept",
               "mutable", "override", "final"}
LIST_AFTER = {"=", ",", "(", "?", "<", "return", "co_return", "co_yield", "co_await"}
CONTROL = {"if", "for", "while", "switch", "else", "do", "try", "catch"}


class Frame:
    """An open bracket. Frames of code (file, block, function, lambda) contain statements; list and paren do not."""

    def __init__(self, kind, begin=0, part_of_expression=False):
        self.kind, self.begin, self.part_of_expression = kind, begin, part_of_expression
        self.awaits, self.suspects = False, []

    @property
    def is_code(self):
        return self.kind in ("file", "block", "function", "lambda")


def matching(tokens, i, step, open_, close):
    """Index of the bracket that matches the one at i, going forward (1) or back (-1)."""
    depth = 0
    while 0 <= i < len(tokens):
        depth += (tokens[i] == open_) - (tokens[i] == close)
        if depth == 0:
            return i
        i += step
    return max(0, min(i, len(tokens) - 1))


def type_before(tokens, i):
    """(index before the type, last word of its name) for the type that ends at i, as in a::b<c>."""
    if tokens[i] == ">":
        i = matching(tokens, i, -1, "<", ">") - 1
    name = tokens[i] if i >= 0 and WORD.match(tokens[i]) else ""
    i -= 1
    while i >= 1 and tokens[i] == "::":
        i -= 1
        if tokens[i] == ">":
            i = matching(tokens, i, -1, "<", ">") - 1
        if i >= 0 and WORD.match(tokens[i]):
            i -= 1
    return i, name


def declares_type(statement):
    """Whether the statement before a brace declares a class, an enumeration or a namespace."""
    i = 0
    while i < len(statement):
        if statement[i] == "template" and statement[i + 1:i + 2] == ["<"]:
            i = matching(statement, i + 1, 1, "<", ">") + 1
        elif statement[i] in ("struct", "class", "union", "enum", "namespace", "concept"):
            return True
        elif statement[i] in ("(", "="):
            return False
        else:
            i += 1
    return False


def begins_lambda(tokens, i):
    """Whether the [ at i begins a lambda, not a subscript, an array or a structured binding."""
    if i == 0 or tokens[i - 1] in KEYWORDS:
        return True
    return not (WORD.match(tokens[i - 1]) or tokens[i - 1] in (")", "]", ">", "}", '""', "&&") or
                tokens[i - 1] == "&" and tokens[i - 2] == "auto")


def lambda_at(tokens, i):
    """(index of the body's brace or None, captures anything, captures by copy) for the lambda whose [ is at i."""
    close = matching(tokens, i, 1, "[", "]")
    items, depth, start = [], 0, True
    for token in tokens[i + 1:close]:
        if start:
            items.append(token)
        start = token == "," and depth == 0
        depth += (token in "([{") - (token in ")]}")
    body, depth = close + 1, 0
    while body < len(tokens) and depth >= 0 and tokens[body] != ";":
        if tokens[body] == "{" and depth == 0:
            return body, bool(items), any(item not in ("&", "this") for item in items)
        depth += (tokens[body] in "([") - (tokens[body] in ")]")
        body += 1
    return None, False, False


def list_type(tokens, i, begin):
    """None if the brace at i opens a block, otherwise the name of the type that the list initialises ('' for none)."""
    before = tokens[i - 1] if i else None
    if before in LIST_AFTER:
        return ""
    if before in BLOCK_AFTER or declares_type(tokens[begin:i]):
        return None
    if not (WORD.match(before) or before == ">"):
        return "" if before == "]" else None
    start, name = type_before(tokens, i - 1)
    trailing = tokens[begin:start + 1]
    if "->" in trailing and "(" not in trailing[len(trailing) - trailing[::-1].index("->"):]:
        return None  # f(...) -> type {
    if "requires" in trailing and tokens[start] in ("requires", "&&", "||"):
        return None  # f(...) requires concept<T> {
    return name


def is_declaration(tokens, i, begin):
    """Whether the list at i initialises a declared variable (type name{...}), which creates no temporary."""
    return i - 2 >= begin and WORD.match(tokens[i - 1]) and (
        WORD.match(tokens[i - 2]) and tokens[i - 2] not in KEYWORDS or tokens[i - 2] in (">", "*", "&"))


def faults(source):
    """(line, sentence) for each violation in the text of one file."""
    vouched = {n for n, line in enumerate(source.splitlines(), 1) if VOUCH in line}
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", lambda m: "\n" * m.group().count("\n"), tree.code(source),
                  flags=re.MULTILINE)
    tokens, lines = [], []
    for match in TOKEN.finditer(text):
        tokens.append(match.group())
        lines.append((lines[-1] if lines else 1) + text.count("\n", end if lines else 0, match.start()))
        end = match.start()

    found = []
    stack = [Frame("file")]
    bodies = {}

    def code():
        return next(f for f in reversed(stack) if f.is_code)

    def end_statement(next_token):
        frame = code()
        if frame.awaits:
            found.extend((n, f"{what} in a full expression with co_await: name it first")
                         for n, what in frame.suspects if n not in vouched)
        frame.begin, frame.awaits, frame.suspects = next_token, False, []

    for i, token in enumerate(tokens):
        if token == "(":
            stack.append(Frame("paren"))
        elif token == ")":
            if stack[-1].kind == "paren":
                stack.pop()
        elif token == "[" and begins_lambda(tokens, i):
            body, any_capture, by_copy = lambda_at(tokens, i)
            if body is not None:
                bodies[body] = "lambda" if any_capture else "function"
                if by_copy:
                    code().suspects.append((lines[i], "a lambda that captures by copy"))
        elif token == "{":
            begin = code().begin
            name = None if i in bodies else list_type(tokens, i, begin)
            if i in bodies:
                stack.append(Frame(bodies[i], i + 1, True))
            elif name is not None:
                # `type name{...}`, `type name = {...}` and a designator's `.member = {...}` create no temporary.
                named = is_declaration(tokens, i, begin) or tokens[i - 1] == "="
                if not named and not HARMLESS.match(name):
                    code().suspects.append((lines[i], f"the braced temporary {name}{{...}}"))
                stack.append(Frame("list", part_of_expression=True))
            else:
                words = tokens[begin:i]
                control = bool(words) and words[0] in CONTROL
                function = "(" in words and not control and not declares_type(words)
                end_statement(i + 1)
                stack.append(Frame("function" if function else "block", i + 1))
        elif token == "}":
            while stack[-1].kind == "paren":
                stack.pop()
            if stack[-1].is_code:
                end_statement(i + 1)
            if len(stack) > 1 and not (closed := stack.pop()).part_of_expression:
                code().begin = i + 1
        elif token == ";":
            end_statement(i + 1)
        elif token in COROUTINE:
            enclosing = next((f for f in reversed(stack) if f.kind in ("function", "lambda")), None)
            if enclosing and enclosing.kind == "lambda":
                found.append((lines[i], "a coroutine that is a lambda with captures"))
            if token == "co_await":
                frame = code()
                frame.awaits = True
                innermost = next(f for f in reversed(stack) if f.kind != "paren")
                if innermost.kind == "list":
                    found.append((lines[i], "co_await inside an initializer list"))
                statement = " ".join(tokens[frame.begin:i])
                if re.search(r"\bauto( const| &| &&)* \[[^\]]*\] =( \()*$", statement):
                    found.append((lines[i], "a structured binding directly on co_await"))
    return sorted(set(found))


def check():
    for name in tree.files(".hpp", ".cpp", ".cuh", ".cu"):
        source = tree.text(name)
        if name != CANARY and "co_" in source:
            for line, sentence in faults(source):
                yield name, line, sentence


BAD = {
    "list": [
        "task<void> f(net& n) { std::array<int, 2> a{co_await g(n), co_await g(n)}; }",
        "task<void> f(net& n) { std::vector<int> a = {co_await g(n)}; }",
        "task<pair> f(net& n) { co_return pair{co_await g(n), 2}; }",
        "task<void> f(net& n) {\n  h({(co_await g(n))});\n}",
        "template <class T> task<T> f(net& n) requires number<T> { T x{co_await g(n)}; co_return x; }",
    ],
    "binding": [
        "task<void> f(net& n) { auto [a, b] = co_await g(n); }",
        "task<void> f(net& n) { const auto& [a, b] = (co_await g(n)); }",
        "task<void> f(net& n) { for (;;) { auto&& [a, b] = co_await g(n); } }",
    ],
    "lambda": [
        "void f(net& n) { auto c = [&n]() -> task<void> { co_await g(n); }; }",
        "void f(net& n) { run([&](net& m) -> task<void> { if (m) { co_return; } }); }",
        "void f(net& n) { run([=, x = 1]() mutable -> task<std::vector<int>> { co_return h(); }); }",
    ],
    "temporary": [
        "task<void> f(net& n) { co_await n.send(message{1, 2}, 3); }",
        "task<void> f(net& n) { co_await n.send({1, 2}, 3); }",
        "task<void> f(net& n) { const auto r = h(co_await g(n), spar::options{.a = 1}); }",
        "task<void> f(net& n) { if (co_await n.send(message<int>{}, 3)) { h(); } }",
        "task<void> f(net& n, std::vector<int> v) { co_await n.then([v] { h(v); }); }",
        "task<int> f(net& n) { co_return co_await g(n, std::string{}); }",
    ],
}
GOOD = [
    "task<int> f(net& n) { const int a = co_await g(n); const message m{a, 2}; co_await n.send(m, 3); co_return a; }",
    "task<void> f(net& n) { const auto pair = co_await g(n); const auto [a, b] = pair; use(a, b); }",
    "void f(net& n) { run([](net& m) -> task<void> { co_await g(m); }); }",
    "void f(net& n) { run([&](net& m) -> spar::task<void> { return program(m, n); }); }",
    "task<void> f(net& n) { co_await n.send(tag_t{3}, std::uint64_t{4}); }",
    "task<void> f(net& n) { const auto h = [&](int i) { return i; }; co_await n.send(h(1)); }",
    "struct s : base<int> { task<void> operator()(net& n) const& { co_await g(n); } int a{1}; };",
    "template <transport Net>\nauto f(Net& n) -> spar::task<spar::sparse_stream<float>> {"
    " message m{1}; co_await g(n, m); }",
    "template <class T>\n  requires number<T>\ntask<T> f(net& n) { auto x = co_await g(n); switch (x) { case 1: {} } }",
    "s::s(int a) : a_{a}, b_{a} { h(); }\ntask<void> f(net& n) { co_await g(n); }",
    "void f() { use(options{1}); }\n// co_await h({1});\ntask<void> g(net& n) { co_await n.barrier(); }",
    "task<void> f(net& n) { co_await n.send(rank_of{3}, 1); } // coroutine-lint: trivial",
    "task<void> f(net& n) { for (int i{0}; i < 3; ++i) { co_await g(n); } std::array<int, 2> a{}; co_await g(n, a); }",
]


def self_test():
    sentence = {"list": "initializer list", "binding": "structured binding", "lambda": "lambda with captures",
                "temporary": "full expression"}
    for rule, snippets in BAD.items():
        for snippet in snippets:
            yield f"accepted, against rule {rule}: {snippet}", any(sentence[rule] in s for _, s in faults(snippet))
    for snippet in GOOD:
        yield f"rejected valid code: {snippet} ({faults(snippet)})", not faults(snippet)


tree.main(check, self_test)
