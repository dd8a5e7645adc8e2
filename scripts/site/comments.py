#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""comments.py PUBLIC CALLS: checks the comments of public functions in doxygen's XML of the reference (PUBLIC), with
the functions that each function calls (CALLS: Doxyfile.calls).

- The reference has every function of a public header, in the namespace spar.
- A comment names each parameter, as code. Parameters without a name, and those of the members that every part of a
  composition has, need no mention.
- The comment of an algorithm, which is a class with a name and a call operator, or that of its header, names its
  source: a paper by its year, or a section of a paper that \\page papers lists by a short name.
- A comment names each type of exception that the function throws, itself or in functions that the reference leaves out.
  \\page call_errors names the errors of calls for functions whose comment, class or type of an argument refers to this
  page, as the concept of communicators and the class `channel` do; every other function that makes calls must refer to
  it. The comment of the namespace spar names the errors of every function.

--self-test checks that each omission is found."""

import functools
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as etree
from pathlib import Path

import public_headers
from public_headers import ROOT, tree

# The notation of all comments (docs/glossary.md), and names that say all: the rank that calls, the operation, the
# function that is called, the memory from which results are allocated.
USUAL = {"n", "k", "ranks", "net", "op", "f", "args", "other", "memory"}
# What a selector gets, which selector/selector.hpp explains, and the model of the network that every cost gets.
USUAL |= {"work", "prepare", "network"}
# Arguments of the coroutines of schedules, which collective/algorithm.hpp explains.
PROTOCOL = {"x", "mine", "over", "store", "residual", "root", "absent"}

CALL_ERRORS = "call_errors"
SOURCE = re.compile(r"\b(19|20)\d\d\b|\b(section|algorithm|figure)s? [0-9IVX]")
# Calls, many of which doxygen does not see: detail::f, detail::class{} and kernel::class<T>::f; and f(...) or f<T>(...)
# of the own class or an internal namespace around it.
QUALIFIED = re.compile(r"\b(?:detail|kernel)::(\w+)(?:<[\w:, ]*>)?(?:::(?:template )?(\w+))?")
PLAIN = re.compile(r"(?<![\w.:>])(\w+)(?:<[\w:, ]+>)?\(")
CAUGHT = re.compile(r"(?P<indent>\n *)try \{(?P<tried>(?:(?!(?P=indent)\}).)*)(?P=indent)\} catch \(\.\.\.\) \{"
                    r"(?P<handler>(?:(?!(?P=indent)\}).)*)", re.DOTALL)
RETHROWN = re.compile(r"\bthrow;|rethrow|\bfail_to_begin\(")  # in the handler, or after it
THROWN = re.compile(r"\braise<(\w+)>\(|\bthrow (?:\w+::)*(\w+)\(")
INTERNAL = re.compile(r"\b(detail|kernel|(?!decorated|observing)\w+_port)::")


def description(element):
    """The elements of a comment."""
    return element.findall("briefdescription") + element.findall("detaileddescription")


def prose(element):
    return " ".join("".join(text.itertext()) for text in description(element))


def code_words(element):
    """All identifiers in the code of a comment."""
    return {word for text in description(element) for code in text.iter("computeroutput")
            for word in re.findall(r"\w+", "".join(code.itertext()))}


def refers_to_call_errors(element):
    return any(ref.get("refid") == CALL_ERRORS for text in description(element) for ref in text.iter("ref"))


class Function:
    """A function in doxygen's XML."""

    def __init__(self, compound, member):
        self.scope, self.name = re.sub(" *<.*", "", compound.findtext("compoundname")), member.findtext("name")
        self.compound, self.member, self.location = compound, member, member.find("location")
        self.place = f"{self.location.get('file')}:{self.location.get('line')}"
        self.public = member.get("prot") == "public"
        self.throws_nothing = (self.name.startswith("~")
                               or re.search(r"\bnoexcept\b(?!\()", member.findtext("argsstring") or "") is not None)
        self.arguments = member.findtext("argsstring") or ""
        types = member.findall("param/type") + member.findall("templateparamlist/param/type")
        self.types = {word for one in types for word in re.findall(r"\w+", "".join(one.itertext()))}
        self.calls = [reference.get("refid") for reference in member.findall("references")]

    def body(self, root):
        """The text of the definition, without comments, and without what stands in a `try` that catches everything."""
        begin, end = (int(self.location.get(key, -1)) for key in ("bodystart", "bodyend"))
        text = "\n".join(lines_of(root / self.location.get("bodyfile"))[begin - 1 : end]) if begin > 0 else ""
        for caught in reversed(list(CAUGHT.finditer(text))):
            if not RETHROWN.search(text, caught.start("handler")):
                text = text[: caught.start("tried")] + text[caught.end("tried") :]
        return text

    def is_called(self, body, caller):
        """Whether `body` may call this function: doxygen confuses names. A member of another class needs an object."""
        if not self.name.isidentifier() or self.name == self.scope.split("::")[-1]:
            return True
        member = self.compound.get("kind") != "namespace" and self.scope != caller.scope
        argument = r"(?!\))" if any(one.find("defval") is None for one in self.member.findall("param")) else ""
        return re.search(rf"{'[.>:]' if member else ''}\b{self.name}\b(<[^;{{}}]*>)?\({argument}", body) is not None


@functools.cache
def lines_of(file):
    return tree.code(file.read_text(encoding="utf-8")).split("\n")


def compounds(folder):
    for file in sorted(folder.glob("*.xml")):
        for compound in etree.parse(file).getroot().iter("compounddef"):
            yield compound


def functions(folder):
    """All functions by their identifiers."""
    return {member.get("id"): Function(compound, member) for compound in compounds(folder)
            for member in compound.iter("memberdef")
            if compound.get("kind") != "file" and member.get("kind") == "function"}


def parameter_faults(function, shared):
    """Sentences about parameters without a mention. `shared` keeps the words of comments that overloads refer to."""
    text = prose(function.member)
    words = code_words(function.member)
    key = function.scope, function.name
    if "This is an overloaded member function" in text:
        words |= shared.get(key, set())
    if re.search("Called by|Part of the interface", text):
        return
    if "channel" in function.arguments:
        words |= PROTOCOL
    shared[key] = shared.get(key, set()) | words
    text += prose(function.compound)
    for parameter in function.member.findall("param"):
        called = parameter.findtext("declname")
        if called and called not in USUAL and called not in words and not re.search(rf"\b{called}\b", text):
            yield f"the comment of {function.name} does not name `{called}`"


class Graph:
    """What each function throws and calls."""

    def __init__(self, everything, root):
        self.everything, self.root = everything, root
        self.by_name = {}  # scope, or its last part, and name: identifiers
        for identifier, function in everything.items():
            for scope in {function.scope, function.scope.split("::")[-1]}:
                self.by_name.setdefault((scope, function.name), []).append(identifier)

    @functools.cache
    def thrown(self, identifier):
        """The types of the exceptions that the body throws."""
        if self.everything[identifier].throws_nothing:
            return set()
        body = self.everything[identifier].body(self.root)
        return {raised or thrown for raised, thrown in THROWN.findall(body)}

    @functools.cache
    def called(self, identifier):
        """The identifiers of the functions that the body calls."""
        function = self.everything[identifier]
        if function.throws_nothing:
            return []
        body = function.body(self.root)
        names = []
        for name, member in QUALIFIED.findall(body):
            if member:
                names.append((name, member))
            else:
                names += [("detail", name), ("kernel", name), (name, "operator()"), (name, name)]
        parts = function.scope.split("::")
        for end in range(2, len(parts) + 1):  # not in spar, whose functions doxygen sees
            names += [("::".join(parts[:end]), name) for name in PLAIN.findall(body) if name != function.name]
        found = [called for called in function.calls
                 if called in self.everything and self.everything[called].is_called(body, function)]
        return found + [called for name in names for called in self.by_name.get(name, [])]


def error_faults(public, everything, about, root):
    """(place, sentence) for each error without a mention. `about` has the text of each compound of the reference."""
    documented = {function.place: function for function in public.values() if function.public}
    carriers = {name.split("::")[-1] for name, compound in about.items() if refers_to_call_errors(compound)}
    graph = Graph(everything, root)

    def covered(function):
        """Whether a reader of the comment is led to the errors of calls."""
        return bool(carriers & (function.types | {function.scope.split("::")[-1]})
                    or refers_to_call_errors(function.member))

    call_errors = set(re.findall(r"\w+", prose(about[CALL_ERRORS])))
    anywhere = set(re.findall(r"\w+", prose(about["spar"])))
    said = {}  # what the comments of all overloads say
    for function in documented.values():
        key = function.scope, function.name
        said[key] = said.get(key, "") + prose(function.member)
    for first, own in everything.items():
        function = documented.get(own.place)
        if not function:
            continue
        types, makes_calls, seen, todo = {}, "", {first}, [(first, "")]
        for identifier, way in todo:  # grows while it is read
            for kind in graph.thrown(identifier):
                types.setdefault(kind, way)
            for called in graph.called(identifier):
                if called in seen:
                    continue
                seen.add(called)
                other = documented.get(everything[called].place)
                if not other:
                    todo.append((called, f"{way} by {everything[called].name}"))
                elif covered(other) and not other.throws_nothing:
                    makes_calls = makes_calls or f"{way} by {other.name}"
        text = prose(function.member)
        if "This is an overloaded member function" in text:
            text = said[function.scope, function.name]
        words = set(re.findall(r"\w+", text)) | anywhere
        if covered(function):
            words |= call_errors
        elif makes_calls:
            yield function.place, (f"the comment of {function.name}, which makes calls{makes_calls}, does not refer to "
                                   f"{CALL_ERRORS}")
        for kind, way in sorted(types.items()):
            if kind not in words:
                yield function.place, f"the comment of {function.name} does not name `{kind}`, which it throws{way}"


def source_faults(folder):
    """(place, sentence) for each algorithm of the reference without a source."""
    headers, algorithms = {}, {}
    for compound in compounds(folder):
        if compound.get("kind") == "file":
            headers[compound.find("location").get("file")] = prose(compound)
        members = {member.findtext("name") for member in compound.iter("memberdef") if member.get("prot") == "public"}
        if compound.get("kind") in ("class", "struct") and {"name", "operator()"} <= members:
            algorithms[compound.findtext("compoundname")] = compound
    algorithms.pop("spar::composition", None)  # whose parts are the algorithms
    for name, compound in algorithms.items():
        place = compound.find("location")
        if not SOURCE.search(prose(compound) + headers.get(place.get("file"), "")):
            at = f"{place.get('file')}:{place.get('line')}"
            yield at, f"the comment of {name} and that of its header name no source"


def missing(public, everything, headers):
    """(place, sentence) for each function that the reference lacks, or has outside the namespace spar."""
    places = {function.place for function in public.values()}
    for function in everything.values():
        name = f"{function.scope}::{function.name}"
        public_class = function.public and function.compound.get("prot") != "private"
        if public_class and function.location.get("file") in headers and not INTERNAL.search(name):
            if function.place not in places:
                yield function.place, f"the reference lacks {name}"
    for function in public.values():
        if not re.match("(spar|std)\\b", function.scope):
            yield function.place, f"the reference has {function.scope}::{function.name} outside the namespace spar"


def faults(folder, calls, root):
    """(place, sentence) for each fault, in doxygen's XML of the reference and of all headers below `root`."""
    public, everything = functions(folder), functions(calls)
    about = {compound.findtext("compoundname"): compound for compound in compounds(folder)
             if compound.get("kind") != "file"}
    shared = {}
    for function in public.values():
        if function.public:
            for sentence in parameter_faults(function, shared):
                yield function.place, sentence
    yield from error_faults(public, everything, about, root)
    yield from source_faults(folder)
    yield from missing(public, everything, {function.location.get("file") for function in public.values()})


HEADER = """// SPDX
// A header (Knuth 1973).
namespace spar {
struct own {};
struct peer {};
/// Has a rank. May throw the \\ref call_errors.
template <class Net> concept communicates = true;
namespace kernel {
namespace detail {
inline void lowest() { raise<own>({"no"}); }
} // namespace detail
inline void low() { detail::lowest(); }
template <class T> void typed() { low(); }
} // namespace kernel
/// Sends `x`.
template <communicates Net>
void call(Net& net, int x) { if (x < 0) throw peer(); }
/// Calls.
class good {
 public:
  /// Throws `own` if `x` is 0, and the \\ref call_errors.
  void run(int x) {
    x == 0 ? kernel::low() : call(*this, x);
    detail::lease<int>::end();
  }
  /// Throws `own`.
  void first() { kernel::low(); }
  void first(int) { kernel::low(); }
  /// Ignores errors.
  void safe() noexcept { kernel::low(); }
  /// The last function.
  void last() {}
  /// Called by `call`.
  void operator()() {}
  static constexpr int name = 1; ///< the name

 private:
  void hidden() { raise<own>({"no"}); }
};
} // namespace spar
"""
PAGES = """/// \\namespace spar
/// Names.
/// \\page call_errors Errors
/// The error `peer`.
"""


def found_in(header, pages=PAGES, lost=""):
    """The sentences about `header`, of which the reference lacks the line `lost`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        public = public_headers.public_text(header).replace(lost, "")
        for part, text in (("all/a.hpp", header), ("public/a.hpp", public), ("pages.dox", pages)):
            (folder / part).parent.mkdir(exist_ok=True)
            (folder / part).write_text(text)
        for part, settings in (("all", "Doxyfile.calls"), ("public", "Doxyfile")):
            options = {"OUTPUT_DIRECTORY": folder / f"xml-{part}", "INPUT": f"{folder / part} {folder / 'pages.dox'}",
                       "STRIP_FROM_PATH": folder / part, "GENERATE_HTML": "NO", "GENERATE_TAGFILE": "",
                       "WARNINGS": "NO", "WARN_AS_ERROR": "NO"}
            lines = [f"@INCLUDE = scripts/site/{settings}"] + [f"{key} = {value}" for key, value in options.items()]
            subprocess.run(["doxygen", "-"], input="\n".join(lines), text=True, check=True, cwd=ROOT,
                           capture_output=True)
        return [sentence for _, sentence in faults(folder / "xml-public/xml", folder / "xml-all/xml", folder / "all")]


def self_test():
    def one(expected, *changes, **options):
        header = HEADER
        for old, new in changes:
            assert old in header
            header = header.replace(old, new)
        sentences = found_in(header, **options)
        if len(sentences) != 1 or expected not in sentences[0]:
            return f"{expected}: found {sentences}"
        return None

    yield f"a good header: found {found_in(HEADER)}" if found_in(HEADER) else None
    yield one("comment of call does not name `x`", ("Sends `x`", "Sends"))
    yield one("comment of run does not name `own`", ("Throws `own` if `x` is 0, and", "If `x` is 0, throws"))
    yield one("comment of last does not name `own`, which it throws", ("last() {}", 'last() { raise<own>({"no"}); }'))
    yield one("comment of last does not name `own`, which it throws by hidden", ("last() {}", "last() { hidden(); }"))
    yield one("comment of last does not name `own`, which it throws by low by lowest",
              ("last() {}", "last() {\n    try {\n      kernel::low();\n    } catch (...) {\n"
                            "      abort_and_rethrow();\n    }\n  }"))
    yield one("comment of last does not name `own`, which it throws by typed",
              ("last() {}", "last() { kernel::typed<int>(); }"))
    yield one("comment of run, which makes calls by call, does not refer", (", and the \\ref call_errors", ""))
    yield one("comment of call does not name `peer`", pages=PAGES.replace("peer", "other"))
    yield one("spar::good and that of its header name no source", ("(Knuth 1973)", ""))
    yield one("the reference lacks spar::good::last", lost="void last() {}")
    yield one("has storage::f outside the namespace spar",
              ("namespace spar {\n", "/// Names.\nnamespace storage {\n/// None.\nvoid f() {}\n}\nnamespace spar {\n"))


def main():
    if sys.argv[1:] == ["--self-test"]:
        wrong = [f"self-test: {sentence}" for sentence in self_test() if sentence]
    elif len(sys.argv) == 3:
        wrong = sorted({f"{place}: {sentence}"
                        for place, sentence in faults(Path(sys.argv[1]), Path(sys.argv[2]), ROOT / "include")})
    else:
        sys.exit(__doc__)
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
