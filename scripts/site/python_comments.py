#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python_comments.py: checks the docstrings of the package for Python by its sources and _spar.pyi.

- docs/reference/python.md has every public name of spar and spar.torch, and no other.
- Every public class, function, method and property has a docstring.
- The docstring of a function, or of its class, names each parameter, unless it refers to another function or class by a
  role such as :func:, or starts a call.
- The docstring names each exception that the function raises itself.

--self-test checks that each omission is found."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/spar"
PAGE = ROOT / "docs/reference/python.md"
# Explained by the classes that have them, the values above all.
USUAL = {"self", "cls", "comm", "values", "op", "algorithm", "n", "rank", "size", "options"}


def named(word, text):
    return re.search(rf"\b{word}\b", text) is not None


def is_public(name):
    return not name.startswith("_") or name == "__init__"


def function_faults(function, name, around):
    """Sentences about a function, whose class has the docstring `around`."""
    text = ast.get_docstring(function) or ""
    if any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in function.decorator_list):
        return
    if not text and function.name != "__init__":
        yield f"{name} has no docstring"
        return
    if text.startswith("Starts a"):
        return
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if argument.arg not in USUAL and not named(argument.arg, text + around) and not re.search(r":\w+:`", text):
            yield f"the docstring of {name} does not name the parameter {argument.arg}"
    for raised in ast.walk(function):
        if isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call) and isinstance(raised.exc.func, ast.Name):
            if not named(raised.exc.func.id, text or around):
                yield f"the docstring of {name} does not name the error {raised.exc.func.id}"


def faults(source, public, private=()):
    """Sentences about the definitions in `source` whose names are in `public`, and their members not in `private`."""
    for item in ast.parse(source).body:
        if getattr(item, "name", None) not in public:
            continue
        if isinstance(item, ast.FunctionDef):
            yield from function_faults(item, item.name, "")
        elif isinstance(item, ast.ClassDef):
            text = ast.get_docstring(item) or ""
            if not text:
                yield f"{item.name} has no docstring"
            for member in item.body:
                if isinstance(member, ast.FunctionDef) and is_public(member.name) and member.name not in private:
                    yield from function_faults(member, f"{item.name}.{member.name}", text)


def exported(source):
    for item in ast.parse(source).body:
        if isinstance(item, ast.Assign) and item.targets[0].id == "__all__":
            return {name for name in ast.literal_eval(item.value) if not name.startswith("_")}


def check():
    page = set(re.findall(r"^::: (\S+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    expected = set()
    for folder, prefix in ((PACKAGE, "spar."), (PACKAGE / "torch", "spar.torch.")):
        public = exported((folder / "__init__.py").read_text(encoding="utf-8"))
        expected |= {prefix + name for name in public}
        modules = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py*"))}
        functions = {item.name for path, source in modules.items() if path.suffix == ".py"
                     for item in ast.parse(source).body if isinstance(item, ast.FunctionDef)}
        for path, source in modules.items():
            private = set() if path.suffix == ".py" else functions | {"__init__"}  # what Python puts around the stub
            for sentence in faults(source, public - private, private):
                yield f"{path.relative_to(ROOT)}: {sentence}"
    for name in sorted(expected ^ page):
        yield f"{PAGE.relative_to(ROOT)}: {'lacks' if name in expected else 'has no public name'} {name}"


def self_test():
    def found(source):
        return list(faults(source, {"f", "C"}))

    yield "a good function", not found('def f(a):\n    """Takes a. Raises E."""\n    raise E()')
    yield "no docstring", found("def f(): pass") == ["f has no docstring"]
    yield "another function", not found("def g(): pass")
    yield "a parameter", len(found('def f(a):\n    """Takes."""')) == 1
    yield "an error", len(found('def f():\n    """Takes."""\n    raise E("x")')) == 1
    yield "a class", found("class C: pass") == ["C has no docstring"]
    yield "a method", len(found('class C:\n    """A."""\n    def g(self): pass\n    def _h(self): pass')) == 1
    yield "arguments of a class", not found('class C:\n    """Of a."""\n    def __init__(self, a): pass')
    yield "exported names", exported('__all__ = ["a", "__version__"]') == {"a"}


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        wrong = [f"self-test: {what}" for what, held in self_test() if not held]
    elif len(sys.argv) == 1:
        wrong = list(check())
    else:
        sys.exit(__doc__)
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
