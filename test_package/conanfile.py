# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds and runs programs with the package."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TestSpar(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            compiled = self.dependencies[self.tested_reference_str].options.compiled
            for program in ["consumer", "consumer_any"] if compiled else ["consumer"]:
                self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
