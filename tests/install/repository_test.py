#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the licence of every file (REUSE), the citation file, and the workflow for GitHub.

repository_test.py reuse|schemas
"""

import subprocess
import sys

import pypi

ROOT = pypi.ROOT
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def accepts(*command):
    return subprocess.run([str(word) for word in command], cwd=ROOT).returncode == 0


if sys.argv[1] == "reuse":
    expect(accepts(pypi.program("reuse", "6.2.0"), "lint"), "reuse lint rejects the repository")
    # LICENSE, where users and tools look for the licence, has both texts of LICENSES.
    parts = [(ROOT / "LICENSES" / name).read_text().strip() for name in ("Apache-2.0.txt", "LLVM-exception.txt")]
    whole = (ROOT / "LICENSE").read_text()
    expect("\n".join(parts).split() == whole.split(), "LICENSE differs from the texts in LICENSES")
else:
    check = pypi.program("check-jsonschema", "0.39.0")
    for schema, name in [("citation-file-format", "CITATION.cff"), ("github-workflows", ".github/workflows/ci.yml")]:
        expect(accepts(check, "--builtin-schema", f"vendor.{schema}", name), f"{name} is invalid")

sys.exit(1 if failures else 0)
