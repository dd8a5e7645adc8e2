# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of README.md, docs/guide/python.md and examples/python run."""

import re
import runpy
import sys

import pytest
from processes import ROOT, run_processes

import spar

pytestmark = pytest.mark.skipif(not spar.has_ucx, reason="built without UCX")


def blocks():
    for page in "README.md", "docs/guide/python.md":
        exec("\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)), {})


def test_page():
    text = run_processes(3, blocks)
    assert "rank 2 of 3: 1.0, " in text
    assert re.search(r"\[ *7 100 101 102\] \[3\. 2\. 2\. 2\.\]", text)


def example(path, *arguments):
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


def test_quick_start():
    text = run_processes(2, example, "examples/python/quick_start.py")
    assert "rank 1 of 2: average 0.5, sum {7: 2.0, 100: 2.0, 101: 2.0}" in text


def test_pagerank():
    pytest.importorskip("scipy")
    text = run_processes(3, example, "examples/python/pagerank.py", "--pages", "2000")
    assert "2000 pages on 3 ranks" in text
