# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Objects that keep state from call to call: error feedback, and partial allreduces."""

import enum
from typing import Any, TypeVar

from . import _spar
from ._communicator import Communicator
from ._errors import InvalidArgumentError
from ._pending import Pending
from ._sparse import Sparse

T = TypeVar("T")


def _name_of(dtype: Any) -> str:
    """float32 of "float32", numpy.float32, numpy.dtype("float32") and torch.float32."""
    return getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")


class ErrorFeedback(_spar.ErrorFeedback):
    """An allreduce that sends only selected values; a rank keeps what it has not sent as its residual, and adds that
    to the values of its next call.

    One object makes one call at a time, always with as many values. Its calls raise the errors of a Communicator's.

    Args:
        comm: the communicator, on which all ranks make their objects in the same order.
        algorithm: a composition with a selector, such as "ok_topk:0.01". Raises InvalidArgumentError for another.
        dtype: the type of the values: float32, float64, float16 or bfloat16, by name or as an object of NumPy or
            torch. The residual of bfloat16 has float32.
        index_bits: 32, or 64 for more than 2^32 values."""

    def __init__(self, comm: Communicator, algorithm: object, dtype: Any = "float32", index_bits: int = 32):
        name = _name_of(dtype)
        if name in ("int32", "int64"):
            raise InvalidArgumentError(f"dtype is {name}; error feedback takes float32, float64, float16 and bfloat16")
        if algorithm is None:  # elsewhere the cheapest composition, which has no selector
            raise InvalidArgumentError("algorithm is None; expected a composition with a selector, as 'ok_topk:0.01'")
        super().__init__(comm, algorithm, name, index_bits)
        self._comm = comm

    def reduce_sparse(self, values: Any, op: str = "sum") -> Sparse:
        """As reduce, but leaves the `values` unchanged, and returns the sum, or what `op` says, as a sparse vector."""
        return Sparse(*self._reduce_sparse(values, op))

    def start_reduce(self, values: T, op: str = "sum") -> Pending[T]:
        """Starts a reduce."""
        return self._comm._start(self.reduce, values, op)

    def start_reduce_sparse(self, values: Any, op: str = "sum") -> Pending[Sparse]:
        """Starts a reduce_sparse."""
        return self._comm._start(self.reduce_sparse, values, op)


class Presence(enum.IntEnum):
    """What a rank has contributed to a round of a partial allreduce.

    Attributes:
        ABSENT: nothing.
        STALE: only values that were too late for earlier rounds.
        FRESH: the values of this call, and all earlier ones that were too late."""

    ABSENT = 0
    STALE = 1
    FRESH = 2


class Partial(_spar.Partial):
    """An allreduce of `n` values that does not wait for late ranks, whose values are part of a later round. All ranks
    make their objects in the same order, make the same number of calls, and then drain. The first object starts a
    thread of the communicator, by which this rank takes part in the rounds of others while it computes.

    Its calls raise the errors of a Communicator's.

    Args:
        comm: the communicator. After it is closed, the object makes no calls.
        n: the number of values, also an attribute.
        dtype: the type of the values; its name is an attribute.
        participation: which calls start a round: "solo" the first one, "majority" that of a random rank, "quorum:Q"
            the first Q, "everyone" those of all ranks.
        op: "sum", "average", "min", "max" or "prod".
        algorithm: a composition, as of an allreduce.
        tau: how many rounds may run ahead of a rank, which keeps the result of each until its calls; equal on all
            ranks."""

    def __init__(
        self,
        comm: Communicator,
        n: int,
        dtype: Any = "float32",
        participation: str = "solo",
        op: str = "sum",
        algorithm: object = None,
        tau: int = 64,
    ):
        super().__init__(comm, n, _name_of(dtype), participation, op, algorithm, tau)
        self.n = n
        self.dtype = _name_of(dtype)
        self._comm = comm
        comm._partials.add(self)

    def reduce(self, values: Any) -> list[Presence]:
        """Replaces the `values` by the result of the next round, which is the same on all ranks. Returns what each rank
        has contributed."""
        return [Presence(what) for what in self._reduce(values)]

    def start_reduce(self, values: Any) -> Pending[list[Presence]]:
        """Starts a reduce."""
        return self._comm._start(self.reduce, values)

    def drain(self, values: Any) -> list[Presence]:
        """Waits for all ranks, and replaces the `values` by the sum of all values that are in no earlier round. Returns
        what each rank has contributed."""
        return [Presence(what) for what in self._drain(values)]

    def start_drain(self, values: Any) -> Pending[list[Presence]]:
        """Starts a drain."""
        return self._comm._start(self.drain, values)
