# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The sdist has the files that the build of the package reads, and no others but those of cmake, include and src."""

import subprocess
import tarfile
from pathlib import Path

import scikit_build_core.build

import spar

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = Path(spar._spar.__file__)
BUILD = EXTENSION.parents[2]


def of_the_repository(paths):
    """The paths that are in the repository but neither in its build folder nor in its tests, relative to it."""
    found = (Path(path) if Path(path).is_absolute() else BUILD / path for path in paths)
    found = (Path(*path.parts) for path in map(Path.resolve, found) if path.is_relative_to(ROOT))
    return {str(path) for path in (path.relative_to(ROOT) for path in found) if path.parts[0] not in ("build", "tests")}


def ninja(*arguments):
    return subprocess.run(["ninja", "-C", BUILD, "-t", *arguments], check=True, capture_output=True, text=True).stdout


def read_by_the_build():
    """What the compiler has read for the extension module, and the scripts of CMake for it."""
    inputs = ninja("inputs", str(EXTENSION.relative_to(BUILD))).split()
    read = of_the_repository(inputs)
    for line in ninja("deps", *(path for path in inputs if path.endswith(".o"))).splitlines():
        if line.startswith("    "):
            read |= of_the_repository([line.strip()])
    scripts = of_the_repository(ninja("inputs", "build.ninja").split())
    return read | {path for path in scripts if path.startswith(("CMakeLists.txt", "cmake/", "python/CMake", "src/"))}


def test_the_sdist_has_what_the_build_reads_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    archive = tmp_path / scikit_build_core.build.build_sdist(str(tmp_path))
    with tarfile.open(archive) as files:
        names = {str(Path(*Path(name).parts[1:])) for name in files.getnames()}
    read = read_by_the_build()
    assert len(read) > 100 and "include/spar/spar.h" in read and "src/c/allreduce.cpp" in read
    read |= {"PKG-INFO", "LICENSE", "docs/guide/python.md", "pyproject.toml"}
    read |= {str(path.relative_to(ROOT)) for path in (ROOT / "python/spar").rglob("*.py*") if path.suffix != ".pyc"}
    read.add("python/spar/py.typed")
    assert not read - names, "the sdist lacks files"
    unread = {name for name in names - read if not name.startswith(("cmake/", "include/spar/", "src/"))}
    assert not unread, "the sdist has further files"
