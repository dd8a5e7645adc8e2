# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparse vectors: spar's own, and those of SciPy and torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import _rows, _spar
from ._errors import InvalidArgumentError


@dataclass(eq=False)
class Sparse:
    """A vector of dimension `n` with `values` at the ascending `indices` from 0 to n - 1, and zeros (or the neutral
    element of an operation) elsewhere. coalesce(Sparse(...)) takes entries in any order, also with repeated indices.

    If `values` has more than one dimension, the value at an index is a row: values[i] belongs to indices[i].

    Attributes:
        n: the dimension.
        indices: integers of 32 or 64 bits, signed or not.
        values: float32, float64, float16, bfloat16, int32 or int64, as many values or rows as there are indices."""

    n: int
    indices: Any
    values: Any

    def to_dense(self) -> np.ndarray:
        """All `n` values or rows as a new NumPy array, with zeros where there is no entry."""
        values = np.asarray(self.values)
        dense = np.zeros((self.n, *values.shape[1:]), values.dtype)
        dense[np.asarray(self.indices)] = values
        return dense


class Entries(NamedTuple):
    """The arrays of a vector, and what makes a vector of the same kind from other entries."""

    n: int
    indices: Any
    values: Any
    ascending: bool  # False if the indices may repeat, or have another order
    make: Callable[[Any, Any], Any]


def entries_of(vector: Any, *, sum_rows: bool = True) -> Entries:
    """The entries of a Sparse, a SciPy vector or a torch COO tensor. Rows of the latter with equal indices are summed
    unless `sum_rows` is False. Raises TypeError for another object, and ValueError for a matrix."""
    if isinstance(vector, Sparse):
        return Entries(vector.n, vector.indices, vector.values, True, lambda i, v: Sparse(vector.n, i, v))
    package = type(vector).__module__.partition(".")[0]
    if package == "scipy" and hasattr(vector, "tocoo"):
        return _of_scipy(vector)
    if package == "torch" and getattr(vector, "is_sparse", False):
        return _of_torch(vector, sum_rows)
    raise TypeError(
        f"vector is of the type {type(vector).__name__}; expected a spar.Sparse, a sparse vector of SciPy or a "
        "sparse COO tensor of torch"
    )


def _of_scipy(vector: Any) -> Entries:
    shape, kind = vector.shape, type(vector)
    if len(shape) > 2 or (len(shape) == 2 and shape[0] != 1):
        raise InvalidArgumentError(f"vector has the shape {shape}; expected (n,) or (1, n)")
    if vector.format == "csr":

        def make_csr(i: Any, v: Any) -> Any:
            return kind((v, i, np.array([0, len(i)], i.dtype)), shape)

        return Entries(shape[-1], vector.indices, vector.data, vector.has_canonical_format, make_csr)
    coo = vector.tocoo()
    indices = coo.coords[-1]

    def make_coo(i: Any, v: Any) -> Any:
        coo = type(vector.tocoo())((v, (i,) if len(shape) == 1 else (np.zeros_like(i), i)), shape)
        coo.has_canonical_format = True
        return coo if vector.format == "coo" else coo.asformat(vector.format)

    return Entries(shape[-1], indices, coo.data, bool((indices[1:] > indices[:-1]).all()), make_coo)


def _of_torch(vector: Any, sum_rows: bool) -> Entries:
    import torch

    device = vector.device
    if vector.requires_grad:
        vector = vector.detach()
    vector = vector.cpu()
    shape, dimensions = vector.shape, vector.sparse_dim()
    if dimensions == 0:
        raise InvalidArgumentError(f"vector has the shape {tuple(shape)}, but no sparse dimension")
    has_rows = dimensions < len(shape)
    if sum_rows and has_rows:
        vector = vector.coalesce()  # six times as fast for rows as NumPy
    indices, values = vector._indices(), vector._values()
    if dimensions > 1:  # they count as their product
        (indices, *others) = indices
        for size, along in zip(shape[1:], others):
            indices = indices * size + along
    elif has_rows:
        indices = indices[0]  # otherwise, the shape (1, k) does as well, and a view takes a microsecond
    if has_rows and values.dtype is torch.bfloat16:
        values = values.float()  # NumPy, which adds rows, lacks this type

    def make(i: Any, v: Any) -> Any:
        if dimensions > 1:
            along = torch.stack(torch.unravel_index(torch.from_numpy(i), shape[:dimensions]))
        else:
            along = torch.from_numpy(i[None])
        v = torch.from_numpy(v)
        if v.dtype is not vector.dtype:
            v = v.to(vector.dtype)
        return torch.sparse_coo_tensor(along, v, shape, device=device, is_coalesced=True, check_invariants=False)

    return Entries(shape[:dimensions].numel(), indices, values, vector.is_coalesced(), make)


def coalesce(vector: Any, op: str = "sum") -> Any:
    """A vector of the kind of `vector` (see Communicator.allreduce_sparse) with ascending indices, of entries in any
    order. `op` reduces the values (or rows) of an index in the order given: 'sum', 'min', 'max' or 'prod'. Raises
    TypeError if `vector` is of another kind, and InvalidArgumentError if its shape, an index or `op` does not fit."""
    if op == "average":
        raise InvalidArgumentError("op is 'average'; coalesce takes 'sum', 'min', 'max' or 'prod'")
    entries = entries_of(vector, sum_rows=False)
    by: Any = _rows.coalesce if _rows.are_rows(entries.values) else _spar.coalesce
    return entries.make(*by(*entries[:3], op))
