# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An extension of griffe, which reads the package for Python: docstrings of spar.torch have the signs of torch's own,
roles such as :class:`Reduction` and blocks after "::". Here they become Markdown."""

import re

import griffe


class Roles(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            text = re.sub(r":\w+:`([^`]+)`", r"`spar.torch.\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
