# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparse vectors whose values are rows, among threads, against dense NumPy arrays."""

import numpy as np
import pytest
from values import HAS_HALF, TYPES

import spar

REDUCE = {"sum": np.add, "average": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def random_rows(rank, n, count, width=(3,), index=np.int64, value=np.float32):
    random = np.random.default_rng(rank + 10 * count)
    indices = np.sort(random.choice(n, count, replace=False)).astype(index)
    return spar.Sparse(n, indices, random.integers(-4, 5, (count, *width)).astype(value))


def expected_of(mine, op):
    """The rows of the result by index, one contribution after another."""
    rows = {}
    for vector in mine:
        for index, row in zip(vector.indices.tolist(), vector.values):
            rows[index] = REDUCE[op](rows[index], row) if index in rows else row
    if op == "average":
        rows = {index: (row / len(mine)).astype(row.dtype) for index, row in rows.items()}
    return dict(sorted(rows.items()))


def check(result, expected):
    assert result.indices.tolist() == list(expected)
    for row, value in zip(result.values, expected.values(), strict=True):
        assert np.array_equal(row, value)


@pytest.mark.parametrize("algorithm", [None, "ring"])
@pytest.mark.parametrize("op", REDUCE)
@pytest.mark.parametrize("value", TYPES)
def test_allreduce(value, op, algorithm):
    for n, counts in (9, (4, 0, 5)), (9, (9, 9, 9)), (2**40, (2, 3, 1)), (7, (0, 0, 0)), (0, (0, 0, 0)):
        for width in [(3,), (2, 2), (0,), (1,)] if value == np.float32 else [(3,)]:
            mine = [random_rows(rank, min(n, 50), count, width, value=value) for rank, count in enumerate(counts)]
            for vector in mine:
                vector.n = n
            copies = [(vector.indices.copy(), vector.values.copy()) for vector in mine]
            for result in spar.run_threads(3, lambda comm: comm.allreduce_sparse(mine[comm.rank], op, algorithm)):
                assert (result.n, result.indices.dtype, result.values.dtype) == (n, np.int64, value)
                assert result.values.shape[1:] == width
                check(result, expected_of(mine, op))
            for vector, (indices, values) in zip(mine, copies):
                assert np.array_equal(vector.indices, indices) and np.array_equal(vector.values, values)


def test_all_ranks_have_the_same_bits():
    for counts in (40, 40, 40), (100, 3, 0):  # rows are gathered, and reduced as dense values
        mine = [random_rows(rank, 100, count) for rank, count in enumerate(counts)]
        for vector in mine:
            vector.values = np.random.default_rng(len(vector.indices)).normal(size=vector.values.shape)
        results = spar.run_threads(3, lambda comm: comm.allreduce_sparse(mine[comm.rank]))
        for result in results:
            assert result.values.tobytes() == results[0].values.tobytes()


def test_wide_indices():
    for n in 2**31, 2**31 + 1, 2**40:
        mine = [spar.Sparse(n, np.array([rank, n - 1], np.uint64), np.ones((2, 2))) for rank in range(2)]
        for result in spar.run_threads(2, lambda comm: comm.allreduce_sparse(mine[comm.rank])):
            check(result, {0: [1, 1], 1: [1, 1], n - 1: [2, 2]})


@pytest.mark.skipif(not HAS_HALF, reason="compiled without float16")
def test_half_precision_is_rounded_once():
    rows = np.array([[2048], [1], [1]], np.float16)  # 2048 + 1 is 2048 in this type
    sum_ = spar.coalesce(spar.Sparse(9, np.array([3, 3, 3]), rows))
    assert sum_.values.tolist() == [[2050]]
    mine = [spar.Sparse(9, np.array([0, 3 + rank, 8]), rows[[rank, 0, rank]]) for rank in range(3)]
    sum_ = spar.run_threads(3, lambda comm: comm.allreduce_sparse(mine[comm.rank]))[0]
    assert sum_.values.ravel().tolist() == [2050, 2048, 2048, 2048, 2050]


def test_what_is_sent():
    """Rows that few ranks share are gathered; the others go once around a ring. A codec always gets dense values."""
    width = 1000

    def sent(indices, algorithm=None):
        def reduce(comm):
            own = np.array(indices[comm.rank], int)
            vector = spar.Sparse(100, own, np.ones((len(own), width)))
            comm.allreduce_sparse(vector, "sum", algorithm)
            return comm.last_call.bytes_sent

        return sum(spar.run_threads(4, reduce)) / (8 * width)

    apart = [[4 * rank + i for i in range(4)] for rank in range(4)]
    assert sent(apart) == pytest.approx(4 * 3 * 4, rel=0.01)  # not 2 * 3 * 16
    assert sent([[1, 2, 3, 4]] * 4) == pytest.approx(2 * 3 * 4, rel=0.01)  # not 4 * 3 * 4
    assert sent([[1, 2, 3, 4], [], [], []]) == pytest.approx(2 * 3 * 4, rel=0.01)
    assert sent(apart, "ring") == pytest.approx(2 * 3 * 16, rel=0.01)
    assert sent(apart, "ring+bf16") < 2 * 3 * 16 / 3.9


@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint32, np.uint64])
def test_allgather(index):
    mine = [random_rows(rank, 50, 3 * rank, index=index) for rank in range(3)]
    for parts in spar.run_threads(3, lambda comm: comm.start_allgather_sparse(mine[comm.rank]).result(60)):
        for part, vector in zip(parts, mine, strict=True):
            assert (part.indices.dtype, part.values.shape) == (index, vector.values.shape)
            assert np.array_equal(part.to_dense(), vector.to_dense())


def test_coalesce():
    indices, values = np.array([5, 1, 5, 0, 5]), np.arange(10).reshape(5, 2)
    for op, rows in ("sum", [[6, 7], [2, 3], [12, 15]]), ("max", [[6, 7], [2, 3], [8, 9]]):
        result = spar.coalesce(spar.Sparse(9, indices, values), op)
        assert result.indices.tolist() == [0, 1, 5]
        assert result.values.tolist() == rows
    none = spar.coalesce(spar.Sparse(9, np.zeros(0, np.int32), np.zeros((0, 2), np.float32)))
    assert (none.indices.dtype, none.values.shape) == (np.int32, (0, 2))


@pytest.mark.parametrize(
    "change, text",
    [
        ({"values": np.ones((2, 4), np.float32)}, r"rows \(3,\) .* rows \(4,\) "),
        ({"values": np.ones((2, 3))}, r"rows \(3,\) of float32, .* rows \(3,\) of float64, "),
        ({"n": 8}, "n = 9; .* n = 8"),
        ({"op": "max"}, "by 'sum' and .* by 'max' and"),
        ({"algorithm": "ring"}, "and None of .* and ring of"),
    ],
)
def test_ranks_that_disagree(change, text):
    same = {"n": 9, "values": np.ones((2, 3), np.float32), "op": "sum", "algorithm": None}

    def reduce(comm):
        of = {**same, **change} if comm.rank == 2 else same
        vector = spar.Sparse(of["n"], np.array([1, 5]), of["values"])
        with pytest.raises(spar.MismatchError, match=f"rank 0 calls .*{text}"):
            comm.allreduce_sparse(vector, of["op"], of["algorithm"])

    spar.run_threads(3, reduce)


@pytest.mark.parametrize("n, values", [(9, np.ones(2, np.float32)), (2**33, np.ones((2, 3), np.float32))])
def test_a_rank_that_makes_another_call(n, values):
    def reduce(comm):
        mine = spar.Sparse(n, np.array([1, 5]), values) if comm.rank == 1 else rows
        with pytest.raises(spar.MismatchError, match=expected if comm.rank == 0 else "") as caught:
            comm.allreduce_sparse(mine)
        assert "4294967295" not in str(caught.value)

    rows = spar.Sparse(9, np.array([1, 5]), np.ones((2, 3), np.float32))
    expected = r"this rank calls .* of rows \(3,\) of float32, n = 9; another rank makes another call"
    spar.run_threads(2, reduce)


@pytest.mark.parametrize(
    "n, indices, values, error, text",
    [
        (9, np.array([1, 9]), np.ones((2, 2)), ValueError, r"indices\[1\] is 9; expected at least 0 and less than n"),
        (9, np.array([-1, 3]), np.ones((2, 2)), ValueError, r"indices\[0\] is -1; expected at least 0"),
        (9, np.array([3, 1]), np.ones((2, 2)), ValueError, r"indices\[0\] is 3, and the next one is 1"),
        (9, np.array([1, 1]), np.ones((2, 2)), ValueError, "indices must ascend and be unique"),
        (9, np.array([1]), np.ones((2, 2)), ValueError, r"indices has the shape \(1,\), but values has 2 rows"),
        (-1, np.array([], int), np.ones((0, 2)), ValueError, "n is -1"),
        (9, np.array([1.0]), np.ones((1, 2)), TypeError, "indices has elements of the type float64"),
        (9, np.array([1]), np.ones((1, 2), bool), TypeError, "values has elements of the type bool; expected one of"),
        (9, np.array([1]), np.ones((1, 2), ">f4"), TypeError, "values has elements of the type >f4"),
    ],
)
def test_bad_rows(n, indices, values, error, text):
    (comm,) = spar.Communicator.threads(1)
    for call in comm.allreduce_sparse, comm.allgather_sparse:
        with pytest.raises(error, match=text):
            call(spar.Sparse(n, indices, values))


def test_calls_that_rows_do_not_have():
    (comm,) = spar.Communicator.threads(1)
    rows = spar.Sparse(9, np.array([1]), np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"values has the shape \(1, 2\); expected one dimension"):
        comm.reduce_scatter_sparse(rows)
    with pytest.raises(ValueError, match="op is 'mean'; expected 'sum'"):
        comm.allreduce_sparse(rows, "mean")
    with pytest.raises(TypeError, match="op is <ufunc 'add'>, of the type ufunc; expected 'sum'"):
        comm.allreduce_sparse(rows, np.add)
