# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of sparse vectors whose values are rows, such as gradients of embeddings. The ranks first gather the
numbers of their rows, a few bytes each. Then all ranks know which rows the result has, so rows travel without indices,
and no rank sorts or merges entries."""

import zlib
from typing import Any, NoReturn

import numpy as np

from ._errors import InvalidArgumentError, MismatchError

CALL_BYTES = 256  # of the text that describes a rank's call, if the ranks disagree
TYPES = "float32", "float64", "float16", "bfloat16", "int32", "int64"
OPERATIONS = {"sum": np.add, "average": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def are_rows(values: Any) -> bool:
    """Whether `values` has more than one dimension."""
    return len(getattr(values, "shape", ())) > 1


def coalesce(n: int, indices: Any, values: Any, op: str) -> tuple[Any, Any]:
    """The rows with ascending indices. `op` reduces the rows of an index in the order given."""
    by = _operation(op)
    indices, values = _checked(n, indices, values)
    order = np.argsort(indices, kind="stable")
    indices = indices[order]
    first = np.flatnonzero(_begins(indices))
    if not len(first):
        return indices, values
    sums = by.reduceat(values[order], first, axis=0, dtype=_wide(values.dtype))
    return indices[first], sums.astype(values.dtype, copy=False)


def allgather(comm: Any, n: int, indices: Any, values: Any) -> list[tuple[Any, Any]]:
    """The rows of each rank."""
    indices, values = _checked(n, indices, values, ascending=True)
    numbers = _gather_numbers(comm, n, indices, values, "allgather_sparse")
    parts = _gather(comm, values, [len(of) for of in numbers])
    return [(of.astype(indices.dtype), part) for of, part in zip(numbers, parts)]


def allreduce(comm: Any, n: int, indices: Any, values: Any, op: str, algorithm: object) -> tuple[Any, Any]:
    """The rows that any rank has, reduced. A rank without a row contributes the neutral element of `op`."""
    by = _operation(op)
    indices, values = _checked(n, indices, values, ascending=True)
    numbers = _gather_numbers(comm, n, indices, values, f"allreduce_sparse by {op!r} and {algorithm}")
    counts = [len(of) for of in numbers]
    union, places = _union(numbers)
    total = np.full((len(union), *values.shape[1:]), _neutral(op, values.dtype), values.dtype)
    # A ring sends each row of the union almost twice, a gather sends each row of the other ranks once.
    if algorithm is None and comm.size * max(counts) <= 2 * len(union):
        total = total.astype(_wide(values.dtype), copy=False)
        for place, part in zip(places, _gather(comm, values, counts)):
            part = part.astype(total.dtype, copy=False)
            by(total.take(place, axis=0), part, out=part)  # new memory would take longer than the sum
            total[place] = part
        if op == "average":
            _divide(total, comm.size)
    else:
        total[places[comm.rank]] = values
        comm.allreduce(total, op, algorithm)
    return union.astype(indices.dtype), total.astype(values.dtype, copy=False)


def _union(numbers: list[Any]) -> tuple[Any, list[Any]]:
    """The numbers in any of the ascending arrays, ascending, and the places of each array's numbers among them."""
    everyone = np.concatenate(numbers)
    order = np.argsort(everyone, kind="stable")  # merges the arrays
    ascending = everyone[order]
    is_first = _begins(ascending)
    places = np.empty_like(order)
    places[order] = np.cumsum(is_first) - 1
    return ascending[is_first], np.split(places, np.cumsum([len(of) for of in numbers])[:-1])


def _begins(indices: Any) -> Any:
    """Where an index differs from the one before."""
    return np.append(True, indices[1:] != indices[:-1])[: len(indices)]


def _operation(op: str) -> Any:
    expected = "expected 'sum', 'average', 'min', 'max' or 'prod'"
    if not isinstance(op, str):
        raise TypeError(f"op is {op!r}, of the type {type(op).__name__}; {expected}")
    if op not in OPERATIONS:
        raise InvalidArgumentError(f"op is {op!r}; {expected}")
    return OPERATIONS[op]


def _wide(dtype: Any) -> Any:
    """The type in which values are reduced: float16 is rounded once."""
    return np.float32 if dtype == np.float16 else dtype


def _divide(total: Any, by: int) -> None:
    """Replaces values by quotients; those of integers are rounded towards zero, as in an allreduce."""
    if total.dtype.kind == "f":
        np.divide(total, by, out=total)
    else:
        np.floor_divide(total - np.fmod(total, by), by, out=total)


def _neutral(op: str, dtype: Any) -> Any:
    if op in ("min", "max"):
        if dtype.kind == "f":
            return np.inf if op == "min" else -np.inf
        return np.iinfo(dtype).max if op == "min" else np.iinfo(dtype).min
    return int(op == "prod")


def _checked(n: int, indices: Any, values: Any, ascending: bool = False) -> tuple[Any, Any]:
    indices, values = np.asarray(indices), np.asarray(values)
    if n < 0:
        raise InvalidArgumentError(f"n is {n}; expected at least 0")
    if indices.dtype not in (np.int32, np.int64, np.uint32, np.uint64):
        raise TypeError(f"indices has elements of the type {indices.dtype}; expected integers of 32 or 64 bits")
    if values.dtype.name not in TYPES or not values.dtype.isnative:
        raise TypeError(f"values has elements of the type {values.dtype}; expected one of {', '.join(TYPES)}")
    if indices.shape != values.shape[:1]:
        raise InvalidArgumentError(
            f"indices has the shape {indices.shape}, but values has {len(values)} rows; expected as many"
        )
    wrong = np.flatnonzero((indices < 0) | (indices >= n))
    if len(wrong):
        raise InvalidArgumentError(
            f"indices[{wrong[0]}] is {indices[wrong[0]]}; expected at least 0 and less than n, {n}"
        )
    wrong = np.flatnonzero(indices[1:] <= indices[:-1])
    if ascending and len(wrong):
        raise InvalidArgumentError(
            f"indices[{wrong[0]}] is {indices[wrong[0]]}, and the next one is {indices[wrong[0] + 1]}; indices must "
            "ascend and be unique, as coalesce makes them"
        )
    return indices, values.astype(np.float32) if values.dtype.name == "bfloat16" else values


def _gather_numbers(comm: Any, n: int, indices: Any, values: Any, call: str) -> list[Any]:
    """The indices of each rank, in 32 bits if n < 2^32. Raises MismatchError on all ranks unless they make the same
    call."""
    text = f"{call} of rows {values.shape[1:]} of {values.dtype}, n = {n}".encode()[:CALL_BYTES]
    # A collective of sparse vectors sends lists of any length at once. The last entry has a checksum of the call.
    last, dtype = (2**32 - 1, np.uint32) if n < 2**32 else (2**63 - 2, np.uint64)
    entries = np.empty(len(indices) + 1, dtype)
    entries[:-1], entries[-1] = indices, last
    checksums = np.zeros(len(entries), np.int32)
    checksums.view(np.uint32)[-1] = zlib.crc32(text)
    try:
        parts = comm._allgather_sparse(last + 1, entries, checksums, True)
    except MismatchError as error:  # its text has the numbers of this allgather, which the program does not know
        raise MismatchError(f"this rank calls {text.decode()}; another rank makes another call") from error
    if any(of[-1] != parts[0][1][-1] for _, of in parts):
        _raise_mismatch(comm, text)
    return [of[:-1] for of, _ in parts]


def _raise_mismatch(comm: Any, text: bytes) -> NoReturn:
    texts = np.zeros((comm.size, CALL_BYTES), np.uint8)
    texts[comm.rank, : len(text)] = np.frombuffer(text, np.uint8)
    comm.allgather(texts.view(np.int64))
    calls = [bytes(of).rstrip(b"\0").decode(errors="replace") for of in texts]
    for rank, call in enumerate(calls):
        if call != calls[0]:
            raise MismatchError(f"rank 0 calls {calls[0]}; rank {rank} calls {call}")
    raise AssertionError("the checksums of equal calls differ")


def _gather(comm: Any, own: Any, counts: list[int]) -> list[Any]:
    """The arrays of all ranks, whose lengths are `counts`."""
    everyone = np.empty((comm.size, max(counts), *own.shape[1:]), own.dtype)
    everyone[comm.rank, : len(own)] = own
    everyone[comm.rank, len(own) :] = 0
    comm.allgather(everyone)
    return [part[:count] for part, count in zip(everyone, counts)]
