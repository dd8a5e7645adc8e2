#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the commands of a section of docs/install.md in a new folder, with a new home directory.

page_test.py SECTION WORK: runs each of the section's blocks of `sh` in a shell, in the folder WORK, which first gets
the files that the page assumes and those of the blocks with a title. sudo apt-get installs into the folder WORK/system,
whose programs and files for pkg-config the shell finds, so that the test changes nothing outside WORK except
build/packages.

page_test.py --list: prints the sections that have commands.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pypi

ROOT = pypi.ROOT

# Installs and removes packages in a folder. dpkg knows no other package there, so apt-get checks the dependencies.
SUDO = r"""#!/bin/bash
set -euo pipefail
[[ $1 == apt-get && $3 == -y && $# -ge 4 ]] || { echo "sudo: unexpected command: $*" >&2; exit 1; }
case $2 in
install) apt-get install --simulate -qq "${@:4}" >"$WORK/simulated.txt"; what=(--install "${@:4}") ;;
remove) what=(--purge "${@:4}") ;;
esac
dpkg --root="$WORK/system" --force-not-root --force-depends --force-script-chrootless --log=/dev/null "${what[@]}"
"""

failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def sections(page):
    """{name: [(kind of block, title, text), ...]} for each section of the page that has commands."""
    found = {}
    for part in re.split(r"^## ", page, flags=re.M)[1:]:
        blocks = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', part, re.M | re.S)
        if any(kind == "sh" for kind, _, _ in blocks):
            found[part.split("\n", 1)[0]] = blocks
    return found


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def triplet():
    """Debian's name of this system, which is a folder of libraries."""
    return subprocess.check_output(["g++", "-print-multiarch"], text=True).strip()


def first_program(page, language):
    """The first program of a page in `language`."""
    text = (ROOT / "docs/guide" / page).read_text(encoding="utf-8")
    return next(code for code in re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S) if "program" in code or
                "int main" in code)


def prepare(work, blocks):
    """Creates the folder that the page assumes; returns the environment of the commands."""
    shutil.rmtree(work, ignore_errors=True)
    for name in ["home", "tools", "tmp", "system/var/lib/dpkg/info", "system/var/lib/dpkg/updates"]:
        (work / name).mkdir(parents=True)
    for name in ["status", "available"]:
        (work / "system/var/lib/dpkg" / name).touch()
    (work / "spar").symlink_to(ROOT)
    for program in re.findall(r"^```cpp\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S):
        (work / ("mpi_program.cpp" if "spar/mpi.hpp" in program else "program.cpp")).write_text(program)
    shutil.copy(ROOT / "tests/preload/allreduce_program.cpp", work / "unmodified.cpp")
    for _, title, text in blocks:
        if title:
            (work / title).write_text(text)
    (work / "tools/sudo").write_text(SUDO)
    (work / "tools/sudo").chmod(0o755)
    system = work / "system/usr"
    library = system / "lib" / triplet()
    return os.environ | {
        "WORK": str(work),
        "HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
        "PATH": f"{work / 'tools'}:{system / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin",
        "PKG_CONFIG_PATH": f"{system / 'share/pkgconfig'}:{library / 'pkgconfig'}",
        "LD_LIBRARY_PATH": str(library),
        # As root, and with more ranks than cores.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }


def spar_files(work):
    """Files of spar that a section has installed."""
    found = files_in(work / "home") + files_in(work / "system")
    return [name for name in found if "spar" in name and not name.startswith("var/lib/dpkg/")]


# What the fields of each Debian package contain.
FIELDS = {
    "spar": ["Section: libdevel"],
    "spar-tools": ["libc6 (>=", "libstdc++6 (>="],
    "libspar0.1": ["Section: libs", "libc6 (>=", "libstdc++6 (>="],
    "libspar-dev": ["libspar0.1 (= 0.1.0)", "spar (= 0.1.0)"],
}
LIBRARIES = {"openmpi": "libopenmpi3", "mpich": "libmpich12"}


def flavours():
    return [flavour for flavour in LIBRARIES if shutil.which(f"mpicxx.{flavour}")]


def check_fields(work):
    """What the packages say about themselves, and which files they have."""
    wanted = {name: ["Description: Sparse, compressed", *texts] for name, texts in FIELDS.items()}
    for flavour in flavours():
        wanted["spar-tools"].append(LIBRARIES[flavour])
        wanted[f"libspar-{flavour}-dev"] = ["libspar-dev (= 0.1.0)", f"lib{flavour}-dev"]
    if pathlib.Path("/usr/include/ucp/api/ucp.h").exists():
        wanted["libspar-ucx-dev"] = ["libspar-dev (= 0.1.0)", "libucx-dev"]
    packages = {path.name.partition("_")[0]: path for path in (ROOT / "build/packages").glob("*.deb")}
    expect(packages.keys() == wanted.keys(), f"packages {sorted(packages)}, expected {sorted(wanted)}")
    simulated = (work / "simulated.txt").read_text()
    for name, texts in wanted.items():
        fields = subprocess.check_output(["dpkg-deb", "--field", packages[name]], text=True)
        for text in [f"Package: {name}\n", *texts]:
            expect(text in fields, f"the package {name} has no {text!r}: {fields}")
        expect(f"Inst {name} " in simulated, f"apt-get would not install {name}")
        expect((work / f"system/usr/share/doc/{name}/copyright").exists(), f"{name} has no copyright file")
    control = subprocess.run(["dpkg-deb", "--ctrl-tarfile", packages["libspar0.1"]], capture_output=True, check=True)
    shlibs = subprocess.check_output(["tar", "-xO", "./shlibs"], input=control.stdout).decode()
    expect(shlibs.strip() == "libspar 0.1 libspar0.1 (>= 0.1.0)", f"libspar0.1 has the shlibs {shlibs!r}")
    files = subprocess.check_output(["dpkg-deb", "--contents", packages["spar"]], text=True)
    expect("/spar.hpp" in files and "libspar" not in files, "the package of the headers has other files")


def check_library(work, environment):
    """Compiles programs in C++, C and Fortran with the installed library, by pkg-config and by CMake."""
    library = work / "system/usr/lib" / triplet()
    (work / "sum.c").write_text(first_program("c.md", "c"))
    (work / "sum.f90").write_text(first_program("fortran.md", "fortran"))
    status = run(
        f"""flags=$(pkg-config --cflags --libs spar-compiled)
            g++ -std=c++20 spar/tests/consumer/consumer_any.cpp $flags -o any && ./any
            cc -std=c99 sum.c $flags -o c && [[ $(./c) == "7: 3"* ]] && ldd c | grep {library}/libspar.so.0.1
            cc sum.c $(pkg-config --cflags spar-compiled) {library}/libspar.a -lstdc++ -lm -o static && ./static
            cmake -S spar/tests/consumer/compiled -B compiled -DCMAKE_PREFIX_PATH={work}/system/usr
            cmake --build compiled && compiled/consumer""", work, environment)
    expect(status == 0, f"programs with the compiled library: status {status}")
    for flavour in flavours():
        if not shutil.which(f"mpif90.{flavour}"):
            continue
        status = run(
            f"""folder=$(pkg-config --variable=includedir spar-compiled)/spar
                mpif90.{flavour} $folder/spar.f90 $folder/spar_mpi.f90 sum.f90 -L{library} -lspar-{flavour} \
                  $(pkg-config --static --cflags --libs spar-compiled) -o fortran
                mpiexec.{flavour} -n 2 ./fortran""", work, environment)
        expect(status == 0, f"Fortran over {flavour}: status {status}")


def check_package(work, environment):
    """What the installed Debian packages say about themselves, and that they work with each MPI library."""
    check_fields(work)
    check_library(work, environment)
    system = work / "system/usr"
    licence = system / "share/doc/spar/copyright"
    expect(licence.exists() and licence.read_text() == (ROOT / "LICENSE").read_text(), "the package has no licence")
    names = files_in(system)
    expect(not [n for n in names if "training" in n or "__pycache__" in n], f"unexpected files: {names}")
    for tool in ["spar_plot_perf", "spar_plot_timeline", "spar_topology", "spar_perf"]:
        done = subprocess.run([tool, "--help"], env=environment, capture_output=True, text=True)
        expect(done.returncode in (0, 77), f"{tool} --help: status {done.returncode}: {done.stderr}")
    build = work / "found"
    status = run(
        f"""cmake -S spar/tests/consumer/find_package -B {build} -DCMAKE_PREFIX_PATH={system}
            cmake --build {build}
            {build}/consumer""", work, environment)
    expect(status == 0, f"find_package: status {status}")
    for flavour in flavours():
        report = work / f"{flavour}.json"
        launch = f"mpiexec.{flavour} -n 2"
        command = f"""mpicxx.{flavour} -std=c++20 unmodified.cpp -o {flavour}
            spar_preload --min-bytes 1 --report {report} -- {launch} ./{flavour}
            {launch} spar_perf_{flavour} --count 1K --systems ring --iterations 1"""
        status = run(command, work, environment)
        expect(status == 0, f"{flavour}: status {status}")
        calls = json.loads(report.read_text())["calls"] if report.exists() else 0
        expect(calls > 1000, f"{flavour}: spar handled {calls} calls")


def check_conan(work, environment):
    """The recipe with the compiled library, which its test package uses, compiled fast."""
    status = run(
        """conan create spar -s compiler.cppstd=20 -o "spar/*:compiled=True" -o "spar/*:shared=True" --no-remote \\
             -c tools.cmake.cmaketoolchain:extra_variables="{'CMAKE_CXX_FLAGS_RELEASE': '-O0'}" """, work, environment)
    expect(status == 0, f"conan create with the compiled library: status {status}")


def run(text, work, environment):
    print(re.sub("^", "+ ", text.rstrip(), flags=re.M), flush=True)
    return subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=work, env=environment).returncode


def main():
    page = sections((ROOT / "docs/install.md").read_text())
    if sys.argv[1:] == ["--list"]:
        print("\n".join(page))
        return
    section, work = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    for tool in ["g++", "cmake", "mpicxx", "mpiexec", "pkg-config"]:
        if not shutil.which(tool):
            skip(f"no {tool}")
    if section == "Debian package" and not (shutil.which("dpkg-shlibdeps") and shutil.which("file")):
        skip("no dpkg-shlibdeps or no file")
    environment = prepare(work, page[section])
    if section == "Conan":
        (work / "tools/conan").symlink_to(pypi.program("conan", "2.34.0"))
        (work / "home/.conan2").mkdir()
        (work / "home/.conan2/global.conf").write_text("tools.cmake.cmake_layout:test_folder=$TMP\n")
    for kind, _, text in page[section]:
        if kind != "sh":
            continue
        removes = re.match(r"(xargs )?rm |conan remove|sudo apt-get remove", text)
        if removes:
            installed = spar_files(work)
            expect(installed, "the section has installed nothing")
            # The command is of no use without its library, which only builds of the tools have.
            command, library = (any(name in path for path in installed) for name in ["bin/spar_preload", "libspar_mpi"])
            expect(command == library, f"spar_preload without its library, or the reverse: {installed}")
        status = run(text, work, environment)
        if status != 0:
            expect(False, f"status {status}")
            break
        if removes:
            expect(not spar_files(work), f"not removed: {spar_files(work)}")
        if text.startswith("spar/scripts/package") and section == "Debian package":
            check_package(work, environment)
        if text.startswith("conan profile"):
            check_conan(work, environment)
    if section == "Debian package":
        report = work / "report.json"
        expect(report.exists() and json.loads(report.read_text())["calls"] > 1000, "spar_preload wrote no report")
    sys.exit(1 if failures else 0)


main()
