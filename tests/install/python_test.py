#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python_test.py WORK: makes the sdist of the package for Python, installs it in a new virtual environment in the
folder WORK, where there are a compiler and what pip brings, but neither a repository nor git, CMake, Ninja and ccache,
and runs the program in Python of README.md. Takes some minutes, and needs PyPI."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = ("git", "cmake", "ninja", "ccache")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], text=True, **options)


def main(work):
    shutil.rmtree(work, ignore_errors=True)
    (work / "bin").mkdir(parents=True)
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(HIDDEN):
            (work / "bin" / program.name).symlink_to(program)
    environment = {"PATH": str(work / "bin"), "HOME": str(work), "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())}
    python = work / "venv/bin/python"
    if run(sys.executable, "-m", "venv", work / "venv").returncode != 0:
        print("skipped: python3 cannot create a virtual environment")
        return 77
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if run(*pip, "install", "build==1.6.1", env=environment).returncode != 0:
        print("skipped: pip could not install build, which needs PyPI")
        return 77
    build = [python, "-m", "build", "--sdist", "--outdir", work, ROOT]
    run(*build, env=environment, check=True, stdout=subprocess.DEVNULL)
    (sdist,) = work.glob("spar-*.tar.gz")
    run(*pip, "install", sdist, cwd=work, env=environment, check=True)

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    out = run(python, "-c", program, cwd=work, env=environment, check=True, stdout=subprocess.PIPE).stdout
    expected = "[" + ", ".join(["array([1., 1., 1.])"] * 4) + "]\n"
    if out != expected:
        print(f"FAILED: the program of README.md prints {out!r}; expected {expected!r}")
        return 1
    version = run(python, "-c", "import spar, importlib.metadata as m; print(spar.__version__, m.version('spar'))",
                  cwd=work, env=environment, check=True, stdout=subprocess.PIPE).stdout.split()
    if sdist.name != f"spar-{version[0]}.tar.gz" or version[0] != version[1]:
        print(f"FAILED: the versions of module, package and sdist differ: {version}, {sdist.name}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
