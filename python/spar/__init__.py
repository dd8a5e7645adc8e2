# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparse, compressed, uneven and partial collectives.

    import numpy, spar

    with spar.Communicator.from_env() as comm:
        gradient = numpy.ones(1000, numpy.float32)
        comm.allreduce(gradient, "average")

spar.Communicator has the collectives. `algorithm` is the text of a composition, such as "ring+qsgd:8".
"""

import importlib.util

try:
    from . import _spar
except ImportError:
    # If the loader finds no UCX, take that of libucx-cu12 or libucx-cu13 of PyPI.
    if importlib.util.find_spec("libucx") is None:
        raise
    import libucx

    libucx.load_library()

from ._communicator import Communicator, Statistics, run_threads
from ._composition import Composition
from ._errors import (
    AssertionFailedError,
    CorruptMessageError,
    DeadlockError,
    Error,
    InvalidArgumentError,
    MismatchError,
    PeerFailedError,
    TimeoutError,
    TransportError,
)
from ._objects import ErrorFeedback, Partial, Presence
from ._pending import Pending
from ._spar import block, has_kernels, has_ucx
from ._spar import version as __version__
from ._sparse import Sparse, coalesce

__all__ = [
    "AssertionFailedError",
    "Communicator",
    "Composition",
    "CorruptMessageError",
    "DeadlockError",
    "Error",
    "ErrorFeedback",
    "InvalidArgumentError",
    "MismatchError",
    "Partial",
    "PeerFailedError",
    "Pending",
    "Presence",
    "Sparse",
    "Statistics",
    "TimeoutError",
    "TransportError",
    "__version__",
    "block",
    "coalesce",
    "has_kernels",
    "has_ucx",
    "run_threads",
]
