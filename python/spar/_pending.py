# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls that have been started."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """A call that runs on the communicator's worker thread. Its arrays must not be used before it has ended.

    Started calls of a communicator run one after the other, in the order in which the program has started them. A
    pending call ends without being waited for; it cannot be cancelled, because other ranks take part in it. Only calls
    make these objects, of a `future`."""

    def __init__(self, future: "Future[T]"):
        self._future = future

    def result(self, timeout: float | None = None) -> T:
        """Waits at most `timeout` seconds for the end of the call; returns its result, or raises its error. Raises
        the built-in TimeoutError if the call has not ended by then: wait again later."""
        return self._future.result(timeout)

    wait = result

    def done(self) -> bool:
        """Whether the call has ended, with a result or an error."""
        return self._future.done()

    def add_done_callback(self, function: "Callable[[Pending[T]], Any]") -> None:
        """Calls function(pending) when the call has ended, on the worker thread, or at once if it has ended already.
        Its argument has the same result as this object."""
        self._future.add_done_callback(lambda future: function(Pending(future)))  # without a reference to itself

    def __await__(self) -> Generator[Any, None, T]:
        # A task that is cancelled stops waiting; the call goes on.
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()
