# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The types and docstrings of the extension module are in python/spar/_spar.pyi, which type checkers and the reference
read. `python python/tests/test_stub.py` writes this file anew, with the package of the build in PYTHONPATH."""

import re
from pathlib import Path

from nanobind.stubgen import StubGen

import spar

STUB = Path(__file__).resolve().parents[1] / "spar/_spar.pyi"
LICENCE = Path(__file__).read_text().partition("\n")[0]
HEAD = f"{LICENCE}\n# test_stub.py writes this file.\n"


def stub():
    generator = StubGen(spar._spar, include_private=True)
    generator.put(spar._spar)
    constants = re.sub(r"^(\w+: \w+) = .*", r"\1", generator.get(), flags=re.MULTILINE)  # they differ between builds
    return HEAD + constants.rstrip() + "\n"


def test_the_stub_is_that_of_the_extension_module():
    assert STUB.read_text() == stub(), f"write {STUB.name} anew by python {__file__}"


if __name__ == "__main__":
    STUB.write_text(stub())
