#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks which bugs scripts/mutants --changed makes from lines of code."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "scripts"))
loader = importlib.machinery.SourceFileLoader("mutants", str(ROOT / "scripts/mutants"))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
loader.exec_module(mutants)

BUGS = {
    "    if (a < b) return;": ["    if (a <= b) return;", "    if (true) return;"],
    "    for (int i = 0; i < n; ++i) x[i] = y[i];": ["    for (int i = 1; i < n; ++i) x[i] = y[i];",
                                                     "    for (int i = 0; i <= n; ++i) x[i] = y[i];",
                                                     "    for (int i = 0; i < n; --i) x[i] = y[i];"],
    "    size_ = n - 1; // the last": ["    size_ = n;", "    size_ = n + 1;", "    ;"],
    "    send(std::min(a, b));": ["    send(std::max(a, b));", "    ;"],
    "    if (x && !y) stop();": ["    if (x || !y) stop();", "    if (true) stop();", "    if (x && !y) ;"],
    "  template <class T>": [],
    "#include <a>": [],
    "    return x;": [],
    "    // a < b": [],
    "    const int n;": [],
    "    std::vector<int> x(n);": [],
}
for line, expected in BUGS.items():
    made = [bug for _, bug in mutants.bugs_in(line)]
    if sorted(made) != sorted(expected):
        sys.exit(f"{line!r}: made {made}, expected {expected}")

difference = """--- a/x.hpp
+++ b/include/spar/x.hpp
@@ -1,2 +3 @@ f
-old
+new
@@ -9,0 +11,2 @@
+one
+two
@@ -20,3 +23,0 @@
-gone
"""
if (lines := mutants.changed_lines(difference)) != {"include/spar/x.hpp": [3, 11, 12]}:
    sys.exit(f"changed lines: {lines}")
