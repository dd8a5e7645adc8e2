# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/compile.md."""

import raw
from values import VALUES, table, value

COMPILED = {
    "mpi": "`MPI_Allreduce`",
    "boost_mpi": "Boost.MPI's `all_reduce`",
    "regex": "a program with `std::regex`",
    "dense, spar.hpp": "dense allreduce, `spar.hpp`",
    "dense, part of spar.hpp": "the same, `allreduce.hpp`",
    "dense, compiled library": "the same with `SPAR_COMPILED`",
    "dense, any.hpp": "the same, `any.hpp`",
    "sparse, spar.hpp": "sparse allreduce, `spar.hpp`",
    "sparse, part of spar.hpp": "the same, `allreduce.hpp`",
    "sparse, compiled library": "the same with `SPAR_COMPILED`",
    "sparse, any.hpp": "the same, `any.hpp`",
    "ok_topk, spar.hpp": "Ok-Topk, `spar.hpp`",
    "ok_topk, part of spar.hpp": "the same, `topk.hpp`",
    "ok_topk, compiled library": "the same with `SPAR_COMPILED`",
    "ok_topk, any.hpp": "the same, `any.hpp`",
}


def compiled():
    """{row of the table: what was measured}, for the rows that were measured."""
    programs = raw.read_json("compile.json")["programs"]
    return {name: programs[name] for name in COMPILED if name in programs}


def relative_seconds(name):
    """The time to compile a program, relative to that of the dense allreduce with spar.hpp."""
    return f"{compiled()[name]['seconds'] / compiled()['dense, spar.hpp']['seconds']:.2f}"


@value
def compile_table():
    return table(["program", "seconds", "from .. to", "of the dense one", "kB of code"],
                 [[COMPILED[name], f"{r['seconds']:.2f}", "{:.2f} .. {:.2f}".format(*r["range"]),
                   relative_seconds(name), f"{r['code'] / 1000:.1f}"] for name, r in compiled().items()])


def of_compiler(key, name):
    """Adds the instructions of the compiler, in thousand million, to VALUES."""
    VALUES[f"compile_instructions_{key}"] = lambda: f"{compiled()[name]['instructions'] / 1e9:.2f}"


for _key, _name in (("dense", "dense, spar.hpp"), ("dense_compiled", "dense, compiled library"),
                    ("sparse", "sparse, spar.hpp"), ("sparse_compiled", "sparse, compiled library")):
    of_compiler(_key, _name)


VALUES |= {
    "compile_rounds": lambda: str(raw.read_json("compile.json")["rounds"]),
    "compile_dense_with_library": lambda: relative_seconds("dense, compiled library"),
    "compile_dense_any": lambda: relative_seconds("dense, any.hpp"),
}
