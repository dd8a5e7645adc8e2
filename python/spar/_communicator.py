# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators: how ranks meet, and the calls that the extension module does not have."""

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self, TypeVar

from . import _meeting, _rows, _spar
from ._errors import InvalidArgumentError
from ._pending import Pending
from ._sparse import entries_of

T = TypeVar("T")


class Statistics(NamedTuple):
    """What one call has sent and received on this rank.

    Attributes:
        messages_sent: how many messages this rank has sent.
        messages_received: how many messages this rank has received.
        bytes_sent: the bytes of the payloads that were sent.
        bytes_received: the bytes of the payloads that were received.
        plain_bytes_sent: how many bytes would have been sent without encoding.
        codec_seconds: the part of `seconds` that was spent encoding and decoding.
        seconds: the time from the start of the call to its end."""

    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    plain_bytes_sent: int
    codec_seconds: float
    seconds: float


class Communicator(_spar.Communicator):
    """One rank of a communicator. Use it from one thread at a time.

    All ranks make the same calls in the same order. A blocking call runs on the caller's thread, without Python's
    lock. A call whose name begins with `start_` takes the same arguments, returns a Pending at once, and runs on a
    thread of the communicator; a blocking call waits until the calls that were started before have ended.

    A call raises TypeError or ValueError for an array that does not fit, InvalidArgumentError for another argument,
    before anything is sent, and MismatchError, PeerFailedError, TimeoutError or TransportError while it runs. The
    arguments `op` and `algorithm` are those of allreduce."""

    @classmethod
    def from_env(cls) -> Self:
        """The communicator of the processes of a job, over UCX, from the variables of a launcher such as torchrun,
        srun or mpiexec: docs/guide/ranks.md. A collective call, which waits for the others as many seconds as
        SPAR_DEADLINE says, or 300.

        Raises InvalidArgumentError if a variable is missing or malformed, TimeoutError if ranks do not come in time,
        MismatchError if they disagree on the job, and TransportError if the network fails."""
        return cls(_spar.handle_from_environment())

    @classmethod
    def join(cls) -> Self:
        """The communicator of a job that runs already, whose ranks call `grow`: this process becomes one of its last
        ranks. Reads the variables of from_env but those that name a rank, and raises its errors."""
        return cls(_spar.handle_of_joined())

    @classmethod
    def from_torch(cls, group_or_store: Any = None, rank: int | None = None, size: int | None = None) -> Self:
        """The communicator of the processes of `group_or_store`, a group of torch.distributed, over UCX; None is the
        default group. A store of torch takes the place of a group with `rank` and `size`; no other communicator may use
        the same store: give each a torch.distributed.PrefixStore. A collective call, with the errors of from_env."""
        return cls(_meeting.handle_from_torch(group_or_store, rank, size))

    @classmethod
    def from_mpi4py(cls, comm: Any) -> Self:
        """The communicator of the processes of `comm`, a communicator of mpi4py, over UCX: MPI only brings them
        together, and spar fits every MPI library. A collective call, with the errors of from_env."""
        return cls(_meeting.handle_from_mpi4py(comm))

    @classmethod
    def threads(cls, n: int) -> list[Self]:
        """The communicators of `n` threads of this process: the r-th is for the thread that is rank r. Raises
        InvalidArgumentError if `n` is less than 1."""
        return [cls(handle, True) for handle in _spar.handles_of_threads(n)]

    def shrink(self) -> Self:
        """A communicator of the ranks that go on after one has failed, in their old order; closes this one. A
        collective call of these ranks, which waits for each rank until it has left, its process has ended, or it has
        been silent for the deadline. Raises PeerFailedError if the others go on without this rank."""
        rest = type(self)(self._shrink(), self._in_threads)
        self.close()
        return rest

    def grow(self) -> "Self | None":
        """A communicator with the processes that have called `join`, behind the ranks of this one, or None if there are
        none, in the time of a broadcast. A collective call. This communicator remains as it is."""
        wider = self._grow()
        return type(self)(wider) if wider else None

    def allreduce_sparse(self, vector: T, op: str = "sum", algorithm: object = None) -> T:
        """Reduces the `vector` of all ranks, and returns the same kind of vector: a spar.Sparse with ascending
        indices, a vector of SciPy (of shape (n,) or (1, n)), or a torch COO tensor, whose sparse dimensions count as
        one. Entries of SciPy and torch may have any order and repeated indices, which spar sums.

        The result has NumPy arrays of its own, indices of the argument's type, and float32 for values of bfloat16 in a
        Sparse. It may have entries for all indices: sums of many entries become dense.

        If values are rows, the result has the rows that any rank has. The ranks gather the numbers of their rows. Then
        they gather the rows, too, or make a dense allreduce of the result's rows if that sends less. With `algorithm`,
        a composition for dense values such as "ring+bf16", they always make that allreduce. `last_call` is the last of
        these calls."""
        entries = entries_of(vector)
        if _rows.are_rows(entries.values):
            result: T = entries.make(*_rows.allreduce(self, *entries[:3], op, algorithm))
        else:
            result = entries.make(*self._allreduce_sparse(*entries[:4], op, algorithm))
        return result

    def allgather_sparse(self, vector: T) -> list[T]:
        """Gathers the sparse vectors of all ranks, each a `vector` of allreduce_sparse, in a list by rank."""
        entries = entries_of(vector)
        if _rows.are_rows(entries.values):
            return [entries.make(*part) for part in _rows.allgather(self, *entries[:3])]
        return [entries.make(*part) for part in self._allgather_sparse(*entries[:4])]

    def reduce_scatter_sparse(self, vector: T, op: str = "sum", bounds: Sequence[int] | None = None) -> T:
        """Reduces the sparse vectors of all ranks, and returns the entries of this rank's block, with their indices in
        the whole vector. `vector` is as of allreduce_sparse, but its values cannot be rows, for which the call raises
        InvalidArgumentError. `bounds` and the blocks are those of reduce_scatter."""
        entries = entries_of(vector)
        if _rows.are_rows(entries.values):
            raise InvalidArgumentError(
                f"values has the shape {tuple(entries.values.shape)}; expected one dimension: only allreduce_sparse "
                "and allgather_sparse take rows"
            )
        block: T = entries.make(*self._reduce_scatter_sparse(*entries[:4], op, bounds))
        return block

    _hosts: list[int] | None = None

    @property
    def hosts(self) -> list[int] | None:
        """The hosts for compositions over a tree: ranks with equal numbers share a host. All ranks set the same
        numbers. None at first: ranks of processes then have the hosts on which they run, ranks of threads share one."""
        return self._hosts

    @hosts.setter
    def hosts(self, hosts: Sequence[int]) -> None:
        self._set_hosts(hosts)
        self._hosts = list(hosts)

    @property
    def last_call(self) -> Statistics:
        """What the call that has ended last has sent and received."""
        return Statistics(*self._last_call())

    def split(self, colour: int, key: int = 0) -> Self:
        """Divides the communicator: ranks with the same `colour`, at least 0, form a new one, in the order of their
        `key` and then of their old rank. A collective call. The deadline is that of this communicator."""
        part = type(self)(self._split(colour, key), self._in_threads)
        part.deadline = self.deadline
        return part

    def start_allreduce(self, values: T, op: str = "sum", algorithm: object = None, out: T | None = None) -> Pending[T]:
        """Starts an allreduce."""
        return self._start(self.allreduce, values, op, algorithm, out)

    def start_allgather(self, values: T) -> Pending[T]:
        """Starts an allgather."""
        return self._start(self.allgather, values)

    def start_broadcast(self, values: T, root: int = 0) -> Pending[T]:
        """Starts a broadcast."""
        return self._start(self.broadcast, values, root)

    def start_reduce_scatter(self, values: T, op: str = "sum", bounds: Sequence[int] | None = None) -> Pending[T]:
        """Starts a reduce_scatter."""
        return self._start(self.reduce_scatter, values, op, bounds)

    def start_allreduce_sparse(self, vector: T, op: str = "sum", algorithm: object = None) -> Pending[T]:
        """Starts an allreduce_sparse."""
        return self._start(self.allreduce_sparse, vector, op, algorithm)

    def start_allgather_sparse(self, vector: T) -> Pending[list[T]]:
        """Starts an allgather_sparse."""
        return self._start(self.allgather_sparse, vector)

    def start_reduce_scatter_sparse(
        self, vector: T, op: str = "sum", bounds: Sequence[int] | None = None
    ) -> Pending[T]:
        """Starts a reduce_scatter_sparse."""
        return self._start(self.reduce_scatter_sparse, vector, op, bounds)

    def start_barrier(self) -> Pending[None]:
        """Starts a barrier."""
        return self._start(self.barrier)

    _worker: ThreadPoolExecutor | None = None

    def _start(self, function: Callable[..., T], *arguments: Any) -> Pending[T]:
        self._begin_started()
        try:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "spar")
            return Pending(self._worker.submit(self._run_started, function, arguments))
        except BaseException:
            self._end_started()
            raise

    def _run_started(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        self._set_worker()  # not in an initializer, which would keep the communicator alive
        try:
            return function(*arguments)
        finally:
            self._end_started()

    @functools.cached_property
    def _partials(self) -> "weakref.WeakSet[_spar.Partial]":
        """The partial allreduces, which tell the other ranks when they end."""
        return weakref.WeakSet()

    def close(self) -> None:
        """Waits for started calls, and frees the communicator. `with` closes, too. A second call does nothing."""
        for partial in list(self._partials):
            partial._free()
        super().close()
        if self._worker is not None:
            self._worker.shutdown(wait=False)
            self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            try:
                self.abort(_reason(error))
            except Exception:  # the communicator is closed, or another rank's error has ended it
                pass
        self.close()


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def run_threads(n: int, function: Callable[[Communicator], T]) -> list[T]:
    """Calls function(comm) on `n` threads, each with its own communicator, and returns the results by rank. The first
    error of a rank ends the calls of the others, and is raised."""
    comms = Communicator.threads(n)
    results: list[Any] = [None] * n
    errors: list[BaseException] = []  # in the order in which they were raised

    def run(comm: Communicator, rank: int) -> None:
        try:
            with comm:
                try:
                    results[rank] = function(comm)
                except BaseException as error:
                    errors.append(error)
                    raise
        except BaseException:
            pass

    threads = [threading.Thread(target=run, args=(comm, rank), name=f"rank {rank}") for rank, comm in enumerate(comms)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # such as KeyboardInterrupt
        for comm in comms:
            comm.abort(_reason(error))
        raise
    if errors:
        raise errors[0]
    return results
