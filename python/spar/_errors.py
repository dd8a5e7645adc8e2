# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exceptions of spar. After any of them but InvalidArgumentError, close the communicator: no collective works on
it any more."""

import builtins


class Error(RuntimeError):
    """An error of spar; the text says what is wrong, with the values."""


class InvalidArgumentError(Error, ValueError):
    """An argument is invalid. Nothing was sent, and the communicator still works."""


class MismatchError(Error):
    """The ranks disagree on a call, such as its number of values, type or algorithm."""


class CorruptMessageError(Error):
    """A message has bytes that no correctly working rank sends."""


class PeerFailedError(Error):
    """Another rank has failed, has left, or has aborted; the text names the rank and its reason."""


class TimeoutError(Error, builtins.TimeoutError):
    """An awaited message did not arrive within the deadline."""


class DeadlockError(Error):
    """This rank would wait although it has no call in flight."""


class TransportError(Error):
    """The layer below spar failed, such as UCX."""


class AssertionFailedError(Error):
    """An invariant of spar does not hold: an error in spar."""
