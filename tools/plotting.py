# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the plot_* tools share: reading files, finding matplotlib, and writing the figure. Exit status: 2 for a wrong
option or file, 77 if matplotlib is missing."""

import json
import math
import os
import pathlib
import stat
import sys

# The colours of Okabe and Ito, which colour-blind readers can tell apart, with grey for yellow, which is too pale for
# lines on white, and brown as a ninth colour.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#888888", "#8B5A2B"]


def fail(status, text):
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(status)


def refuse(constant):
    raise ValueError(f"it has the number {constant}")


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def read_json(name):
    try:
        kind = os.stat(name).st_mode
        if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
            fail(2, f"cannot read {name}: it is a device, which may have no end")
        with open(name, encoding="utf-8") as file:
            return json.load(file, parse_constant=refuse)
    except (OSError, ValueError) as error:  # ValueError: no UTF-8 or no JSON
        fail(2, f"cannot read {name}: {error}")
    except RecursionError:
        fail(2, f"cannot read {name}: its values are nested too deep")


def find_pyplot():
    try:
        import matplotlib
    except ImportError:
        debian = "/usr/bin/python3"  # sees Debian's python3-matplotlib; `env python3` may find another Python
        if sys.executable != debian and os.access(debian, os.X_OK):
            os.execv(debian, [debian, "-B", *sys.argv])  # -B: no __pycache__ beside installed tools
        fail(77, "matplotlib is missing (Debian package python3-matplotlib)")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    matplotlib.rcParams["svg.hashsalt"] = "spar"  # the same file for the same data
    from matplotlib import pyplot

    return pyplot


def time_unit(seconds):
    """(name, factor) of the unit in which the largest of some times is easy to read."""
    for name, factor in [("s", 1), ("ms", 1e3), ("us", 1e6)]:
        if seconds * factor >= 1:
            return name, factor
    return "ns", 1e9


def legend_below(figure, handles, labels):
    """A legend under the axes, so that the figure stays narrow and its text large."""
    columns = max(1, min(4, len(labels), 80 // max(map(len, labels))))
    figure.legend(handles, labels, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 0), ncols=columns)


def save(figure, name, tight=True, **metadata):
    """Writes the figure. The metadata go into an SVG; screen readers say its Title."""
    described = {"Date": None, **metadata} if name.endswith(".svg") else None
    try:
        figure.savefig(name, dpi=150, bbox_inches="tight" if tight else None, metadata=described)
    except (OSError, ValueError) as error:
        fail(2, f"cannot write {name}: {error}")
