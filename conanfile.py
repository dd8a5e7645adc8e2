# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipe for Conan 2: the headers, and the same CMake package as that of `cmake --install`. With the option `compiled`,
also the compiled library, shared or static by the option `shared`, for each MPI library of the machine, too, and with
`ucx` for processes without MPI, over the UCX of the machine."""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import load


class Spar(ConanFile):
    name = "spar"
    description = "Sparse, compressed, uneven and partial collectives"
    license = "Apache-2.0 WITH LLVM-exception"
    topics = ("mpi", "allreduce", "collectives", "header-only")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"compiled": [True, False], "shared": [True, False], "ucx": [True, False]}
    default_options = {"compiled": False, "shared": False, "ucx": False}
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "scripts/preload", "src/*", "tools/*"
    no_copy_source = True

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include/spar/version.hpp"))
        self.version = ".".join(re.findall(r"#define SPAR_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))

    def configure(self):
        if not self.options.compiled:
            del self.options.shared
            del self.options.ucx  # the headers need none
            self.package_type = "header-library"

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCHMARKS", "EXAMPLES", "TOOLS"):
            toolchain.cache_variables[f"SPAR_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if self.options.compiled:
            cmake.build(target="spar_compiled_shared" if self.options.shared else "spar_compiled")
            cmake.build(target="spar_compiled_mpi")
            if self.options.ucx:
                cmake.build(target="spar_compiled_ucx")

    def package(self):
        CMake(self).install()

    def package_id(self):
        if not self.info.options.compiled:
            self.info.clear()

    def package_info(self):
        # find_package reads spar's own files, which have the components compiled, mpi, ucx, zfp, cuda, nccl and perf.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/spar"]
        self.cpp_info.bindirs = []
        self.cpp_info.system_libs = ["pthread"]
        if self.options.compiled:
            self.cpp_info.libs = ["spar"]
            self.cpp_info.defines = ["SPAR_COMPILED"]
        else:
            self.cpp_info.libdirs = []
