# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# NOT TESTED: no test of spar runs this recipe, and nobody has installed spar by it.
"""Recipe for Spack, in a repository of recipes as packages/spar/package.py. `spack develop` or `spack dev-build` takes
the sources from a checkout."""

from spack.package import *


class Spar(CMakePackage):
    """Sparse, compressed, uneven and partial collectives over MPI, threads and a simulated network, in C++20."""

    license("Apache-2.0 WITH LLVM-exception")

    version("0.1.0")

    variant("tools", default=False, description="Build spar_perf, spar_topology and libspar_mpi.so")
    variant("compiled", default=False, description="Build the compiled library, for C++, C and Fortran")
    variant("shared", default=False, when="+compiled", description="Build the compiled library as a shared library")

    variant("ucx", default=False, description="The transport over UCX, for processes without MPI")

    variant("cuda", default=False, description="The CUDA runtime for spar::cuda, device memory")
    variant("nccl", default=False, when="+cuda", description="NCCL for spar::nccl")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("mpi")
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("cuda", when="+cuda")
    depends_on("nccl@2.14:", when="+nccl")
    depends_on("cli11", when="+tools")
    depends_on("fmt", when="+tools")
    depends_on("nlohmann-json", when="+tools")

    conflicts("%gcc@:11", msg="spar needs g++ 12 or later")
    conflicts("%clang@:13", msg="spar needs clang++ 14 or later")

    def cmake_args(self):
        unused = ["TESTS", "BENCHMARKS", "EXAMPLES"]
        return [self.define(f"SPAR_BUILD_{part}", False) for part in unused] + [
            self.define_from_variant("SPAR_BUILD_TOOLS", "tools")
        ]

    @property
    def build_targets(self):
        targets = ["spar_tools"] if self.spec.satisfies("+tools") else []
        if self.spec.satisfies("+compiled"):
            targets += ["spar_compiled_shared" if self.spec.satisfies("+shared") else "spar_compiled"]
            targets += ["spar_compiled_mpi"]
            targets += ["spar_compiled_ucx"] if self.spec.satisfies("+ucx") else []
        return targets
