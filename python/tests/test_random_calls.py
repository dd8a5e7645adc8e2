# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random calls with arrays of random types, shapes, strides and permissions: each is right, or is refused with the
name of the array. SPAR_FULL makes 10^5 calls."""

import os
import random

import numpy as np
from values import TYPES as VALUE_TYPES

import spar

CALLS = 100_000 if os.environ.get("SPAR_FULL") else 3_000
GOOD = [np.dtype(of).str[1:] for of in VALUE_TYPES]
TYPES = [*GOOD, "u1", "i2", "u4", "u8", "?", "c8", ">f4", "S3", "O", "M8[s]"]


def random_array(choose, dtype=None):
    """An array, and whether it can be an argument that is written."""
    dtype = np.dtype(dtype or choose.choice(TYPES if choose.random() < 0.3 else GOOD))
    shape = choose.choice([(), (0,), (1,), (5,), (40,), (3, 4), (2, 0), (2, 3, 2)])
    values = np.zeros(shape, dtype)
    if dtype.str[1:] in GOOD:
        values[...] = np.array([choose.randint(-5, 5) for _ in range(values.size)]).reshape(shape)
    change = choose.randrange(12)
    if change == 0 and values.ndim:
        values = np.repeat(values, 2, -1)[..., ::2]
    elif change == 1 and values.ndim > 1:
        values = np.asfortranarray(values)
    elif change == 2:
        values.setflags(write=False)
    elif change == 3 and values.ndim:
        values = values[::-1]
    elif change == 4 and values.size:
        values = np.broadcast_to(values.flat[0], values.shape)
    dtype = values.dtype  # which differs for the elements of an array of objects
    return values, dtype.str[1:] in GOOD and dtype.isnative and values.flags.c_contiguous


def dense_call(choose, comm):
    values, good = random_array(choose)
    before = values.copy()
    kind = choose.randrange(5)
    writes = values if kind else None
    out = None
    if kind == 0:
        out, good_out = random_array(choose, values.dtype if choose.random() < 0.8 else None)
        good = good and good_out and out.dtype == values.dtype and out.size == values.size
        writes = out
    good = good and writes.flags.writeable

    def call():
        if kind <= 1:
            return comm.allreduce(values, choose.choice(["sum", "max", "prod", "average"]), out=out)
        return [comm.allgather, comm.broadcast, comm.reduce_scatter][kind - 2](values)

    def check(result):  # of one rank: the argument
        if kind <= 3:
            assert result is writes
        assert np.array_equal(np.ravel(result), np.ravel(before))
        assert np.array_equal(values, before)

    return call, good, check, ("values", "out")


def sparse_call(choose, comm):
    n = choose.choice([0, 1, 40, 2**33])
    count = min(choose.choice([0, 1, 1, 5]), n)
    index = choose.choice(["i4", "i8", "u4", "u8"] * 4 + ["f4", "i2"])
    good = index not in ("f4", "i2")
    indices = np.array(sorted(choose.sample(range(min(n, 2**15)), count)), index)
    values, good_values = random_array(choose)
    if choose.random() < 0.8:
        values = np.ones(choose.choice([count, (count, 2)]), choose.choice(GOOD))
        good_values = True
    good = good and good_values and (values.shape[0] if values.ndim > 1 else values.size) == count
    if count and choose.random() < 0.2:
        if np.dtype(index).kind == "i" and index != "i2" and choose.random() < 0.5:
            indices[0] = -1 - choose.randrange(9)
        else:
            indices[choose.randrange(count)] = min(n, 2**31 - 1) if n < 2**15 else 0
        ints = indices.astype(object).astype(int).tolist()
        good = good and all(0 <= i < n for i in ints) and ints == sorted(set(ints))
    vector = spar.Sparse(n, indices, values)

    def check(result):
        assert result.indices.dtype == indices.dtype
        assert np.array_equal(result.indices, indices)
        assert np.array_equal(result.values, values if values.ndim > 1 else values.ravel())

    return lambda: comm.allreduce_sparse(vector), good, check, ("indices", "values", "index", "stream")


def test_random_calls():
    choose = random.Random(7)
    (comm,) = spar.Communicator.threads(1)
    right = 0
    for number in range(CALLS):
        call, good, check, names = (dense_call if choose.random() < 0.7 else sparse_call)(choose, comm)
        try:
            result = call()
        except (TypeError, ValueError) as error:
            assert not good, f"call {number}: {error}"
            assert any(name in str(error) for name in names), f"call {number}: {error}"
        else:
            assert good, f"call {number} should have failed"
            check(result)
            right += 1
    assert CALLS / 4 < right < CALLS * 0.9
