# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs from PyPI for tests, each in a virtual environment of its own below build/."""

import fcntl
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(name, version):
    """The path of the program `name` of the package with the same name. Exits with 77 if pip cannot install it."""
    folder = ROOT / "build/pypi" / f"{name}-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            pip = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", f"{name}=={version}"]
            for command in [[sys.executable, "-m", "venv", "--clear", folder], pip]:
                if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
                    print(f"skipped: no {name} {version} (pip or python3-venv failed)")
                    sys.exit(77)
            (folder / "complete").touch()
    return folder / "bin" / name
