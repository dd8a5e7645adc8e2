# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of sparse vectors among threads, against dense NumPy arrays."""

import numpy as np
import pytest
from values import TYPES

import spar

INDEX_TYPES = [np.int32, np.int64, np.uint32, np.uint64]


def random_vector(rank, n, count, index=np.int64, value=np.float32):
    random = np.random.default_rng(rank)
    indices = np.sort(random.choice(n, count, replace=False)).astype(index)
    return spar.Sparse(n, indices, random.integers(1, 9, count).astype(value))


@pytest.mark.parametrize("value", TYPES)
@pytest.mark.parametrize("index", INDEX_TYPES)
def test_allreduce_sparse(index, value):
    for n, count in (50, 0), (50, 3), (50, 40), (0, 0):
        mine = [random_vector(rank, n, count, index, value) for rank in range(3)]
        expected = sum(vector.to_dense() for vector in mine)

        for sum_ in spar.run_threads(3, lambda comm: comm.allreduce_sparse(mine[comm.rank])):
            assert (sum_.indices.dtype, sum_.values.dtype) == (index, value)
            assert np.array_equal(sum_.to_dense(), expected)
            assert (np.diff(sum_.indices.astype(np.int64)) > 0).all()


def test_other_collectives_and_started_ones():
    n = 30
    mine = [random_vector(rank, n, 5 + rank) for rank in range(3)]
    dense = [vector.to_dense() for vector in mine]

    def exchange(comm):
        own = mine[comm.rank]
        everyone = comm.allgather_sparse(own)
        assert len(everyone) == 3
        for vector, expected in zip(everyone, dense, strict=True):
            assert np.array_equal(vector.to_dense(), expected)
        calls = [
            comm.start_allreduce_sparse(own, "max", "ssar_split"),
            comm.start_allgather_sparse(own),
            comm.start_reduce_scatter_sparse(own),
            comm.start_reduce_scatter_sparse(own, "average", [0, 1, 2, n]),
        ]
        most, again, block, average = [call.result(60) for call in calls]
        assert np.array_equal(most.to_dense(), np.maximum.reduce(dense))
        assert np.array_equal(again[2].to_dense(), dense[2])
        inside = np.zeros(n, bool)
        inside[slice(*spar.block(n, 3, comm.rank))] = True
        assert np.array_equal(block.to_dense(), np.where(inside, sum(dense), 0))
        inside[:] = False
        inside[[slice(0, 1), slice(1, 2), slice(2, n)][comm.rank]] = True
        assert np.allclose(average.to_dense(), np.where(inside, sum(dense) / 3, 0))

    spar.run_threads(3, exchange)


def test_wide_vectors():
    n = 2**40

    def reduce(comm):
        vector = spar.Sparse(n, np.array([comm.rank, n - 1]), np.ones(2))
        return comm.allreduce_sparse(vector)

    for sum_ in spar.run_threads(2, reduce):
        assert sum_.indices.tolist() == [0, 1, n - 1]
        assert sum_.values.tolist() == [1, 1, 2]
    (comm,) = spar.Communicator.threads(1)
    sum_ = comm.allreduce_sparse(spar.Sparse(2**32, np.array([2**32 - 1]), np.ones(1)))
    assert sum_.indices.tolist() == [2**32 - 1]


def test_entries_are_encoded_where_the_network_is_slow():
    def sent(comm):
        mine = random_vector(comm.rank, 2**20, 2**13)
        found = []
        for byte_seconds in 1e-10, 1e-7:
            comm.set_network(1e-6, byte_seconds)
            comm.allreduce_sparse(mine, "sum", "sparcml+coded")
            found.append(comm.last_call.bytes_sent)
        return found

    for fast, slow in spar.run_threads(2, sent):
        assert slow < 0.8 * fast
    (comm,) = spar.Communicator.threads(1)
    with pytest.raises(spar.InvalidArgumentError, match="beta"):
        comm.set_network(1e-6, -1.0)


def test_coalesce():
    sum_ = spar.coalesce(spar.Sparse(9, np.array([5, 1, 5], np.int32), np.array([1.0, 2, 3])))
    assert sum_.indices.tolist() == [1, 5]
    assert sum_.values.tolist() == [2, 4]
    most = spar.coalesce(spar.Sparse(9, np.array([5, 1, 5]), np.array([1, 2, 3])), "max")
    assert most.values.tolist() == [2, 3]
    for values in np.ones(1), np.ones((1, 2)):
        with pytest.raises(ValueError, match="op is 'average'; coalesce takes 'sum'"):
            spar.coalesce(spar.Sparse(9, np.array([5]), values), "average")


def test_scipy():
    scipy = pytest.importorskip("scipy.sparse")
    n = 20

    def reduce(comm):
        dense = np.zeros((1, n))
        dense[0, [3, 3 + comm.rank]] = 1 + comm.rank
        expected = np.zeros((1, n))
        expected[0, 3:6] = [6, 2, 3]
        for kind in scipy.csr_array, scipy.coo_array, scipy.csr_matrix, scipy.coo_matrix, scipy.csc_array:
            sum_ = comm.allreduce_sparse(kind(dense))
            assert type(sum_) is kind
            assert np.array_equal(sum_.toarray(), expected)
        for indices in [5, 0, 5], [0, 5, 5], [5, 3, 0]:  # an index twice, and unordered
            vector = scipy.coo_array((np.array([1.0, 2, 4]), (np.array(indices),)), (n,))
            sum_ = comm.allreduce_sparse(vector)
            assert sum_.shape == (n,)
            assert np.array_equal(sum_.toarray(), 3 * vector.toarray())

    spar.run_threads(3, reduce)
    with pytest.raises(ValueError, match=r"vector has the shape \(2, 3\); expected \(n,\) or \(1, n\)"):
        spar.coalesce(scipy.csr_array(np.ones((2, 3))))


def test_torch():
    torch = pytest.importorskip("torch")

    def reduce(comm):
        for dtype in torch.float32, torch.bfloat16, torch.int64:
            values = torch.tensor([1, 2, 4], dtype=dtype)
            mine = torch.sparse_coo_tensor(torch.tensor([[5, comm.rank, 5]]), values, (9,))
            sum_ = comm.allreduce_sparse(mine)
            assert (sum_.is_sparse, sum_.is_coalesced(), sum_.dtype) == (True, True, dtype)
            assert sum_.to_dense().tolist() == [2, 2, 0, 0, 0, 10, 0, 0, 0]
        assert comm.start_allgather_sparse(mine).result()[1].to_dense().tolist() == [0, 2, 0, 0, 0, 5, 0, 0, 0]

    spar.run_threads(2, reduce)
    with pytest.raises(ValueError, match=r"vector has the shape \(2,\), but no sparse dimension"):
        spar.coalesce(torch.sparse_coo_tensor(torch.zeros(0, 3, dtype=torch.int64), torch.ones(3, 2), (2,)))
    with pytest.raises(TypeError, match="vector is of the type Tensor; expected"):
        spar.coalesce(torch.ones(2))


def test_torch_with_more_dimensions():
    torch = pytest.importorskip("torch")

    def given(rank, dtype, dense):
        places = torch.tensor([[1, 0, 1], [2, rank, 2]])  # an index twice
        values = torch.arange(3 * 2**dense).view(3, *(2 for _ in range(dense))) + 1
        return torch.sparse_coo_tensor(places, values.to(dtype), (2, 3, *(2 for _ in range(dense))))

    def reduce(comm):
        for dtype in torch.float32, torch.bfloat16, torch.float16, torch.int64:
            for dense in 0, 1, 2:
                own = given(comm.rank, dtype, dense)
                sum_ = comm.allreduce_sparse(own)
                assert (sum_.is_coalesced(), sum_.dtype, sum_.shape) == (True, dtype, own.shape)
                expected = given(0, dtype, dense).to_dense() + given(1, dtype, dense).to_dense()
                assert torch.equal(sum_.to_dense(), expected)
                assert dense == 0 or sum_.indices().tolist() == [[0, 0, 1], [0, 1, 2]]
                other = comm.allgather_sparse(own)[1]
                assert torch.equal(other.to_dense(), given(1, dtype, dense).to_dense())

    spar.run_threads(2, reduce)


@pytest.mark.parametrize(
    "n, indices, values, error, text",
    [
        (9, np.array([1, 9]), np.ones(2), ValueError, r"indices\[1\] is 9; expected at least 0 and less than n, 9"),
        (9, np.array([-1, 3], np.int32), np.ones(2), ValueError, r"indices\[0\] is -1; expected at least 0"),
        (9, np.array([3, 1]), np.ones(2), ValueError, "ascend"),
        (9, np.array([1, 1]), np.ones(2), ValueError, "indices must be unique"),
        (9, np.array([1]), np.ones(2), ValueError, "indices has 1 elements, but values has 2"),
        (-1, np.array([], int), np.ones(0), ValueError, "n is -1"),
        (9, np.array([1.0]), np.ones(1), TypeError, "indices has elements of the type float64; expected integers"),
        (9, [1], np.ones(1), TypeError, "indices is of the type list"),
        (9, np.array([1]), [1.0], TypeError, "values is of the type list"),
        (9, np.array([1]), np.ones(1, bool), TypeError, "values has elements of the type bool"),
        (9, np.arange(8)[::2], np.ones(4), ValueError, "indices is not contiguous"),
    ],
)
def test_bad_vectors(n, indices, values, error, text):
    (comm,) = spar.Communicator.threads(1)
    for call in comm.allreduce_sparse, comm.allgather_sparse, comm.reduce_scatter_sparse:
        with pytest.raises(error, match=text):
            call(spar.Sparse(n, indices, values))


def test_another_object_is_no_vector():
    (comm,) = spar.Communicator.threads(1)
    with pytest.raises(TypeError, match="vector is of the type ndarray; expected a spar.Sparse"):
        comm.allreduce_sparse(np.ones(3))
