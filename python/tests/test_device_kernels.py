# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of CUDA devices in a package with kernels, which fibres run on the host, on a double of the CUDA runtime. The
ranks are processes, of which some pass arrays in host memory to the same calls."""

import ctypes

import numpy as np
import pytest
from processes import run_processes
from test_device import DeviceArray

import spar

kernels = ctypes.CDLL(spar._spar.__file__).spar_kernels_so_far
kernels.restype = ctypes.c_uint64

N = 700
WITH_KERNELS = [
    ("float32", "sum", None), ("float32", "average", "ring"), ("float32", "sum", "rec_doubling+bf16"),
    ("float32", "sum", "ring+zfp:12"), ("float32", "average", "topka:0.05"), ("float32", "sum", "ok_topk:0.05"),
    ("float64", "sum", "gtopk:0.05"), ("int32", "average", "ring"), ("int64", "sum", None),
]
WITHOUT = [
    ("float16", "sum", None), ("float32", "max", "ring"), ("float32", "sum", "flexreduce"), ("int64", "min", None),
    ("float32", "sum", "topka:0.05+coded"), ("float32", "sum", "ring+mx:e4m3"),
]


def contribution(rank, step, dtype):
    return np.random.default_rng(100 * rank + step).normal(0, 50, N).astype(dtype)


def place(comm, values, on_host):
    """The values of a rank: in host memory on the rank `on_host`."""
    return values.copy() if comm.rank == on_host else DeviceArray(values)


def fetch(x):
    return x if isinstance(x, np.ndarray) else x.get()


def compare_allreduce():
    comm = spar.Communicator.from_env()
    for has_kernels, calls in (True, WITH_KERNELS), (False, WITHOUT):
        for dtype, op, algorithm in calls:
            for on_host in (-1, 0, comm.size - 1):
                expected = contribution(comm.rank, 0, dtype)
                x = place(comm, expected, on_host)
                comm.allreduce(expected, op, algorithm)
                before = kernels()
                assert comm.allreduce(x, op, algorithm) is x
                ran = np.array([kernels() > before], np.int32)
                assert not ran[0] or (has_kernels and comm.rank != on_host), (dtype, op, algorithm)
                comm.allreduce(ran)  # a rank may only send and receive
                assert comm.size == 1 or (ran[0] > 0) == has_kernels, (dtype, op, algorithm)
                assert fetch(x).tobytes() == expected.tobytes(), (dtype, op, algorithm)
    comm.barrier()
    comm.close()


def compare_feedback():
    comm = spar.Communicator.from_env()
    for algorithm, dtype, index_bits in (("ok_topk:0.05:period=3", "float32", 32), ("topka:0.05", "float64", 32),
                                         ("topka:0.05", "float32", 64), ("ok_topk:0.05+coded", "float32", 32)):
        here = spar.ErrorFeedback(comm, algorithm, dtype, index_bits)
        there = spar.ErrorFeedback(comm, algorithm, dtype, index_bits)
        before = kernels()
        for step, on_host in enumerate((-1, 0, -1, comm.rank, -1)):  # in the fourth step, all are on the host
            expected = contribution(comm.rank, step, dtype)
            x = place(comm, expected, on_host)
            here.reduce(expected, "average")
            assert there.reduce(x, "average") is x
            assert fetch(x).tobytes() == expected.tobytes(), (algorithm, step)
            if step == 1:
                assert np.array_equal(there.residual, here.residual)
        assert there.save() == here.save()
        assert (kernels() > before) == (index_bits == 32 and algorithm != "ok_topk:0.05+coded")
    comm.barrier()
    comm.close()


def reduce_in_default_streams():
    comm = spar.Communicator.from_env()
    for stream in (None, 1, 2):  # 1 and 2 are cudaStreamLegacy and cudaStreamPerThread
        before = kernels()
        x = DeviceArray(np.full(N, comm.rank + 1, np.float32), stream=stream)
        x.get()  # the values are there
        comm.allreduce(x, algorithm="ring")
        x.stream = ctypes.c_void_p(stream)
        assert (x.get() == 3).all() and kernels() > before
    comm.close()


def keep_staging_with_a_progress_thread():
    comm = spar.Communicator.from_env()
    x = DeviceArray(np.ones(3, np.float32))
    comm.allreduce(x)
    before = kernels()
    partial = spar.Partial(comm, 3, "float32")
    comm.allreduce(x)
    assert (x.get() == comm.size**2).all() and kernels() == before
    partial.drain(np.zeros(3, np.float32))
    comm.close()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_allreduce(ranks):
    run_processes(ranks, compare_allreduce)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_feedback(ranks):
    run_processes(ranks, compare_feedback)


def test_default_streams():
    run_processes(2, reduce_in_default_streams)


def test_progress_thread():
    run_processes(2, keep_staging_with_a_progress_thread)


def test_threads():
    def reduce(comm):
        values = contribution(comm.rank, 0, "float32")
        x = values.copy() if comm.rank == 1 else DeviceArray(values)
        return fetch(comm.allreduce(x, algorithm="ring"))

    before = kernels()
    first, second = spar.run_threads(2, reduce)
    assert np.array_equal(first, second) and kernels() == before
