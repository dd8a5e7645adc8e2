# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# test_stub.py writes this file.
"""The compiled part of spar."""

from collections.abc import Sequence
from typing import Any, TypeVar


version: str

ArrayT = TypeVar("ArrayT")

def handles_of_threads(ranks: int) -> list[int]: ...

def handle_from_environment() -> int: ...

def handle_of_joined() -> int: ...

def handle_from_store(put: object, wait: object, rank: int, size: int) -> int: ...

has_ucx: bool

has_kernels: bool

class Communicator:
    """One rank of a communicator. spar.Communicator has the makers."""

    def __init__(self, handle: int, in_threads: bool = False) -> None: ...

    def _allreduce_sparse(self, n: int, indices: object, values: object, ascending: bool, op: str, algorithm: object) -> tuple[Any, Any]: ...

    def _allgather_sparse(self, n: int, indices: object, values: object, ascending: bool) -> list[tuple[Any, Any]]: ...

    def _reduce_scatter_sparse(self, n: int, indices: object, values: object, ascending: bool, op: str, bounds: Sequence[int] | None) -> tuple[Any, Any]: ...

    @property
    def _in_threads(self) -> bool: ...

    @property
    def rank(self) -> int:
        """This rank, from 0 to size - 1."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def deadline(self) -> float:
        """
        For how many seconds a call waits for a message before it raises TimeoutError; 600 at first.
        """

    @deadline.setter
    def deadline(self, arg: float, /) -> None: ...

    def _set_hosts(self, hosts: Sequence[int]) -> None: ...

    def set_network(self, message_seconds: float, byte_seconds: float) -> None:
        """
        Sets what a message and a byte cost on the network: message_seconds and byte_seconds.

        Compositions such as 'dense' and 'sparcml+coded' choose a schedule by these numbers, and whether to encode entries. At
        first 1e-6 and 1e-10, for ranks on one machine; links of 1 Gbit/s have about 5e-5 and 8e-9. A collective call: all ranks
        get the numbers of rank 0. Raises InvalidArgumentError on all ranks if one of these is negative, infinite or NaN.
        """

    def _last_call(self) -> tuple[int, int, int, int, int, float, float]: ...

    def _split(self, colour: int, key: int) -> int: ...

    def _shrink(self) -> int: ...

    def _grow(self) -> int: ...

    def _begin_started(self) -> None: ...

    def _end_started(self) -> None: ...

    def _set_worker(self) -> None: ...

    def close(self) -> None:
        """
        Waits for started calls, and frees the communicator. `with` closes, too. A second call does nothing.
        """

    def abort(self, reason: str) -> None:
        """
        Ends all calls, also later ones, on all ranks with PeerFailedError and the reason. Any thread may call it.
        """

    def barrier(self) -> None:
        """Waits until all ranks have called it."""

    def allreduce(self, values: ArrayT, op: str = 'sum', algorithm: object = None, out: ArrayT | None = None) -> ArrayT:
        """
        Reduces the values of all ranks, in place or to `out`, and returns that array.

        Args:
            values: a contiguous array of float32, float64, float16, bfloat16, int32 or int64, of the same size on all ranks.
                The values of bfloat16 are reduced as float32, and rounded at the end.
            op: 'sum', 'average', 'min', 'max' or 'prod'; integers wrap around.
            algorithm: the text of a composition, such as 'ring' or 'ok_topk:0.01', or a Composition; None is the cheapest of
                SparCML's algorithms.
            out: an array like `values`, which then remain unchanged.
        """

    def allgather(self, values: ArrayT) -> ArrayT:
        """
        Gathers in place: rank r contributes the elements of block(values.size, self.size, r). Returns values.
        """

    def broadcast(self, values: ArrayT, root: int = 0) -> ArrayT:
        """
        Copies the values of the rank `root` to all ranks, in place. Returns values.
        """

    def reduce_scatter(self, values: ArrayT, op: str = 'sum', bounds: Sequence[int] | None = None) -> ArrayT:
        """
        Reduces the values of all ranks in place, and returns this rank's block of them, a view of one dimension.

        The other values are unspecified afterwards. Rank r has block(values.size, self.size, r) or, with `bounds`, the elements
        from bounds[r] to bounds[r + 1]; bounds ascends from 0 to values.size and is equal on all ranks. `op` is as of
        allreduce.
        """

def coalesce(n: int, indices: object, values: object, op: str) -> tuple[Any, Any]: ...

def block(n: int, size: int, rank: int) -> tuple[int, int]:
    """
    The elements [begin, end) of rank `rank` if n elements are divided evenly among `size` ranks. Raises
    InvalidArgumentError unless n is at least 0, and rank from 0 to size - 1.
    """

class ErrorFeedback:
    """An allreduce with error feedback."""

    def __init__(self, comm: Communicator, algorithm: object, dtype: str, index_bits: int) -> None: ...

    def reduce(self, values: ArrayT, op: str = 'sum') -> ArrayT:
        """
        Replaces the values by the sum or the average of what the ranks have selected, with zeros where none has.

        values has as many elements in each call. What is not sent stays in the residual. `op` is 'sum' or
        'average'. Returns values.
        """

    def _reduce_sparse(self, values: object, op: str) -> tuple[int, Any, Any]: ...

    @property
    def residual(self) -> object:
        """
        A copy of what this rank has not sent yet; empty before the first call.
        """

    def save(self) -> bytes:
        """
        The residual and the state as bytes, from which a run with the same number of ranks resumes by load.
        """

    def load(self, saved: bytes) -> None:
        """
        Restores `saved`, which save has returned for the same algorithm. Raises InvalidArgumentError if it is
        malformed or belongs to another algorithm, type or number of ranks, and then changes nothing.
        """

    def take_over(self, saved: bytes) -> None:
        """
        Adds the residual that a rank of another run has saved, which may have had another number of ranks. Give
        each `saved` residual to one rank. Raises InvalidArgumentError as load does.
        """

class Partial:
    """An allreduce that does not wait for late ranks."""

    def __init__(self, comm: Communicator, n: int, dtype: str, participation: str, op: object | None, algorithm: object | None, tau: int) -> None: ...

    def _reduce(self, values: object | None) -> list[int]: ...

    def _drain(self, values: object | None) -> list[int]: ...

    def _free(self) -> None: ...
