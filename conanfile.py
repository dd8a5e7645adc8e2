# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipe for Conan 2: the headers, and the same CMake package as that of `cmake --install`."""

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
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "scripts/preload", "tools/*"
    no_copy_source = True

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include/spar/version.hpp"))
        self.version = ".".join(re.findall(r"#define SPAR_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCHMARKS", "EXAMPLES", "TOOLS"):
            toolchain.cache_variables[f"SPAR_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # find_package reads spar's own files, which have the components mpi and perf.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/spar"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.system_libs = ["pthread"]
