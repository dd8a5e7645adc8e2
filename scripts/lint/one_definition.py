#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that no macro which may differ between the files of one program changes a class or a function of a header
(docs/decisions/0031-one-definition.md)."""

import re

import tree

# Macros that are the same in all files of a program: processor, compilers, standard library, MPI library.
SAME = r"""__x86_64__ __aarch64__ __GNUC__ __clang__ __FLT16_MAX__ OPEN_MPI MPICH_NUMVERSION MPIX_CUDA_AWARE_SUPPORT
           __has_include __CUDA_ARCH__""".split()
# Macros that differ, where they change no class and no result of a function, or only names that other files lack.
ALLOWED = {
    ("collective/allreduce/cheapest.hpp", "SPAR_COMPILED"): "names instances that the compiled library also has",
    ("collective/topk/balanced_owners.hpp", "SPAR_COMPILED"): "names instances that the compiled library also has",
    ("core/element.hpp", "__STDCPP_BFLOAT16_T__"): "adds the type bfloat16, which files without the macro cannot name",
    ("core/non_finite.hpp", "__FINITE_MATH_ONLY__"): "compares numbers by their bits, with the same results",
    ("core/compiler.hpp", "__CUDACC__"): "lets device code call a function of the host",
    ("storage/kernel/avx2.hpp", "__CUDACC__"): "works around the front end of nvcc, with the same results",
    ("storage/kernel/merge_avx2.hpp", "__CUDACC__"): "works around the front end of nvcc, with the same results",
    ("storage/kernel/mx.hpp", "__CUDACC__"): "works around the front end of nvcc, with the same results",
    ("storage/kernel/qsgd.hpp", "__CUDACC__"): "works around the front end of nvcc, with the same results",
    ("storage/kernel/qsgd_rounding.hpp", "__CUDACC__"): "works around the front end of nvcc, with the same results",
    ("storage/kernel/short_floats.hpp", "__CUDACC__"): "works around the front end of nvcc, with the same results",
    ("runtime/tasks/task.hpp", "__CUDACC__"): "works around the front end of nvcc, in functions with the same effect",
    ("transport/mpi/lost.hpp", "OMPI_HAVE_MPIX_COMM_GET_FAILED"): "differs with the MPI library; a program has one",
    ("cuda/kernel/coalesce.cuh", "__CUDACC__"): "is nvcc or a double of the device, which no program combines",
    ("cuda/kernel/language.cuh", "__CUDACC__"): "is nvcc or a double of the device, which no program combines",
    ("cuda/kernel/language.cuh", "SPAR_CUDA_ON_HOST"): "is nvcc or a double of the device, which no program combines",
}
# Lines in a conditional block that reach no class and no function.
HARMLESS = re.compile(r"\s*(#\s*(include|error|warning|undef|pragma|line)\b.*)?$")
CONDITION = re.compile(r"\s*#\s*(ifdef|ifndef|if|elif)\b(.*)")
WORD = re.compile(r"\b[A-Za-z_]\w*")
KEYWORDS = {"defined", "if", "ifdef", "ifndef", "elif", "and", "or", "not"}
# A macro of the compiler in code. Builtin functions, attributes and names of the file or the line are none.
PREDEFINED = re.compile(r"\b(__[A-Z][A-Z0-9_]*__|NDEBUG|_GLIBCXX_\w+|__cpp_\w+|__cplusplus|__AVX\w*|__SSE\w*)\b")


def macros_of(condition):
    """The macros that a condition names, without what __has_include looks for."""
    words = set(WORD.findall(re.sub(r"__has_include\([^)]*\)|__has_include\s*<[^>]*>", "__has_include", condition)))
    return {word for word in words if word not in KEYWORDS}


def faults(name, source):
    """(line, sentence) for each macro that may change a class or a function of the header `name`."""
    where = name.removeprefix("include/spar/")
    code = re.sub(r"\\\n", "  ", tree.code(source)).splitlines()  # joins lines; numbers stay right before the first one
    varying, same = set(), set(SAME)  # macros that this header defines if others are defined, and in all files
    blocks = []  # of each open #if: the line, and the macros of its conditions that may differ
    found = []

    def may_differ(macros):
        return {m for m in macros if (m in varying or m not in same) and (where, m) not in ALLOWED}

    for number, line in enumerate(code, 1):
        condition = CONDITION.match(line)
        if condition and condition[1] != "elif":
            blocks.append([number, may_differ(macros_of(condition[2]))])
        elif condition and blocks:
            blocks[-1][1] |= may_differ(macros_of(condition[2]))
        elif re.match(r"\s*#\s*endif\b", line):
            if blocks:
                blocks.pop()
        elif re.match(r"\s*#\s*else\b", line):
            pass
        else:
            define = re.match(r"\s*#\s*define\s+(\w+)", line)
            differing = set().union(*(block[1] for block in blocks))
            if define:
                (varying if differing else same).add(define[1])
            elif differing and not HARMLESS.match(line):
                found.append((number, ", ".join(sorted(differing))))
                for block in blocks:
                    block[1].clear()  # one fault for each block
            if not line.lstrip().startswith("#"):
                for macro in set(PREDEFINED.findall(line)) | (set(WORD.findall(line)) & varying):
                    if may_differ({macro}):
                        found.append((number, macro))
    for number, macro in found:
        yield number, (f"{macro} may differ between the files of one program, and reaches a class or a function: use "
                       "the same code in all files, or give the reason in ALLOWED")


def check():
    used = set()
    for name in tree.files(".hpp", ".cuh", under="include/spar/"):
        source = tree.text(name)
        used |= {(name.removeprefix("include/spar/"), word) for word in WORD.findall(tree.code(source))}
        for number, sentence in faults(name, source):
            yield name, number, sentence
    for where, macro in sorted(set(ALLOWED) - used):
        yield "scripts/lint/one_definition.py", 1, f"ALLOWED names {macro} in {where}, which does not use it"


def self_test():
    def rejects(source, name="include/spar/core/op.hpp"):
        return len(list(faults(name, source))) > 0

    yield "a member by a macro", rejects("struct a {\n#ifdef SPAR_CHECKED\n  int x;\n#endif\n};\n")
    yield "the body of a function", rejects("int f() {\n#ifdef NDEBUG\n  return 0;\n#else\n  return 1;\n#endif\n}\n")
    yield "the other branch", rejects("#if defined(__AVX2__)\n#include <immintrin.h>\n#else\nint f();\n#endif\n")
    yield "a branch after elif", rejects("#if defined(__x86_64__)\n#elif defined(__SSE2__)\nint f();\n#endif\n")
    yield "a nested block", rejects("#ifdef __x86_64__\n#ifdef __POPCNT__\nint f();\n#endif\n#endif\n")
    by_another = "#ifdef NDEBUG\n#define LEVEL 0\n#else\n#define LEVEL 1\n#endif\n"
    yield "a macro that is defined by another", rejects(by_another + "inline constexpr int level = LEVEL;\n")
    yield "a macro by another in a condition", rejects(by_another + "#if LEVEL\nint f();\n#endif\n")
    yield "a macro of the compiler in code", rejects("inline bool fast() { return __FAST_MATH__; }\n")
    yield "the standard in code", rejects("inline constexpr bool is_23 = __cplusplus > 202302L;\n")
    yield "a reason for another header", rejects("#ifdef __CUDACC__\nint f();\n#endif\n")
    yield "the processor is allowed", not rejects("#ifdef __x86_64__\nint f();\n#else\nint g();\n#endif\n")
    yield "includes are allowed", not rejects("#ifdef SPAR_CHECKED\n#include <spar/core/op.hpp> // why\n#endif\n")
    yield "errors are allowed", not rejects("#ifdef __FAST_MATH__\n#warning \"a sentence\"\n#endif\n")
    yield "an unused definition is allowed", not rejects("#ifndef OMPI_SKIP_MPICXX\n#define OMPI_SKIP_MPICXX\n#endif\n")
    yield "comments are no code", not rejects("// NDEBUG and __AVX2__\nint f();\n")
    yield "code after a block is free", not rejects("#ifdef NDEBUG\n#endif\nint f();\n")


if __name__ == "__main__":
    tree.main(check, self_test)
