# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparse, compressed, uneven and partial collectives.

    import numpy, spar

    with spar.Communicator.from_env() as comm:
        gradient = numpy.ones(1000, numpy.float32)
        comm.allreduce(gradient, "average")

spar.Communicator has the collectives. `algorithm` is the text of a composition, such as "ring+qsgd:8".
"""

from ._communicator import Communicator, Statistics, run_threads
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
from ._pending import Pending
from ._spar import __version__, block, has_ucx

__all__ = [
    "AssertionFailedError",
    "Communicator",
    "CorruptMessageError",
    "DeadlockError",
    "Error",
    "InvalidArgumentError",
    "MismatchError",
    "PeerFailedError",
    "Pending",
    "Statistics",
    "TimeoutError",
    "TransportError",
    "__version__",
    "block",
    "has_ucx",
    "run_threads",
]
