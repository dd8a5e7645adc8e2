# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of dense arrays among threads, against NumPy."""

import array
import ctypes

import numpy as np
import pytest
from values import TYPES

import spar

OPERATIONS = {"sum": np.add.reduce, "prod": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce}


def small_integers(rank, n, dtype):
    """Values whose sums and products of few ranks are exact in every type."""
    return np.random.default_rng(rank).integers(-4, 5, n).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_allreduce(ranks, dtype):
    for n in 0, 1, 7, 1000:
        everyone = [small_integers(rank, n, dtype) for rank in range(ranks)]
        for op, expected in OPERATIONS.items():

            def reduce(comm):
                mine = everyone[comm.rank].copy()
                out = np.empty_like(mine)
                assert comm.allreduce(mine, op, out=out) is out
                assert np.array_equal(mine, everyone[comm.rank])
                assert comm.allreduce(mine, op) is mine
                assert np.array_equal(mine, out)
                return out

            for result in spar.run_threads(ranks, reduce):
                assert result.dtype == dtype
                assert np.array_equal(result, expected(everyone, axis=0, dtype=dtype))


def test_average_and_algorithms():
    def reduce(comm):
        return [
            comm.allreduce(np.full((3, 5), comm.rank, np.float32), "average", algorithm)
            for algorithm in (None, "ring", "rabenseifner", "ring+bf16")
        ]

    for results in spar.run_threads(4, reduce):
        for result in results:
            assert result.shape == (3, 5)
            assert (result == 1.5).all()


def test_allgather_broadcast_and_reduce_scatter():
    def exchange(comm):
        n, rank = 11, comm.rank
        begin, end = spar.block(n, comm.size, rank)
        values = np.full(n, -1.0)
        values[begin:end] = rank
        comm.allgather(values)
        for other in range(comm.size):
            begin, end = spar.block(n, comm.size, other)
            assert (values[begin:end] == other).all()
        assert (comm.broadcast(np.full(3, rank), root=1) == 1).all()
        begin, end = spar.block(n, comm.size, rank)
        whole = np.arange(n) * (rank + 1)
        part = comm.reduce_scatter(whole)
        assert np.array_equal(part, np.arange(begin, end) * 6)
        assert part.base is whole
        part = comm.reduce_scatter(np.arange(n) + rank, "max", bounds=[0, 0, 4, n])
        assert np.array_equal(part, np.arange(n)[[0, 0, 4][rank] : [0, 4, n][rank]] + 2)

    spar.run_threads(3, exchange)


def test_statistics_split_and_hosts():
    def use(comm):
        values = np.zeros(1000, np.float32)
        comm.hosts = [0, 0, 1, 1]
        comm.allreduce(values, algorithm="flexreduce")
        assert comm.hosts == [0, 0, 1, 1]
        assert comm.last_call.messages_sent > 0
        assert comm.last_call.seconds > 0
        comm.deadline = 30
        part = comm.split(comm.rank % 2, key=-comm.rank)
        assert (part.size, part.rank, part.deadline) == (2, 1 - comm.rank // 2, 30)
        with part:
            assert part.allreduce(np.array([comm.rank]))[0] == [2, 4][comm.rank % 2]

    spar.run_threads(4, use)


def test_buffer_protocol():
    (comm,) = spar.Communicator.threads(1)
    values = array.array("f", [1, 2])
    assert comm.allreduce(values) is values
    assert comm.allreduce(memoryview(values)).tolist() == [1, 2]
    assert comm.reduce_scatter(values).tolist() == [1, 2]


class OnlyDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    (comm,) = spar.Communicator.threads(1)
    array = np.array([1.0, 2])
    values = OnlyDLPack(array)
    assert comm.allreduce(values) is values
    out = OnlyDLPack(np.zeros(2))
    assert comm.allreduce(values, out=out) is out
    assert out.array.tolist() == [1, 2]
    with pytest.raises(ValueError, match="values is not contiguous: its shape is .2., its strides"):
        comm.allreduce(OnlyDLPack(np.zeros(4)[::2]))
    array.setflags(write=False)
    with pytest.raises(ValueError, match="values is read-only"):
        comm.allreduce(values)
    assert comm.allreduce(values, out=np.zeros(2)).tolist() == [1, 2]


class CopiedByNumpy(OnlyDLPack):
    """A double of a tensor of another package, which has the functions of torch's."""

    def data_ptr(self):
        return self.array.ctypes.data

    def numpy(self):
        return self.array.copy()


def test_tensor_whose_numpy_is_a_copy():
    values = [CopiedByNumpy(np.ones(2)) for _ in range(2)]
    spar.run_threads(2, lambda comm: comm.allreduce(values[comm.rank]))
    assert [of.array.tolist() for of in values] == [[2, 2]] * 2


class OnDevice:
    """A double of a torch tensor on a device: DLPack says so, and only its own functions reach its elements."""

    def __init__(self, array, device=2):  # kDLCUDA
        self.array, self.device, self.dtype = array, device, array.dtype

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **_):
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # DLManagedTensor begins with the address of the elements, and then has the type of the device.
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = self.device
        return capsule

    def cpu(self):
        return self.array.copy()

    def copy_(self, other):
        self.array[...] = other

    def reshape(self, *shape):
        return self.array.reshape(*shape)


class OtherOnDevice(OnDevice):
    cpu = copy_ = property()  # as CuPy's arrays, which lack these


def test_tensors_on_a_device():
    def exchange(comm):
        values, out = OnDevice(np.array([1.0, comm.rank])), OnDevice(np.zeros(2))
        assert comm.allreduce(values, out=out) is out
        assert values.array.tolist() == [1, comm.rank]
        assert out.array.tolist() == [2, 1]
        assert comm.allreduce(values, "max") is values
        assert values.array.tolist() == [1, 1]
        assert comm.broadcast(OnDevice(np.full(2, comm.rank)), root=1).array.tolist() == [1, 1]
        assert comm.reduce_scatter(OnDevice(np.array([1.0, 2]))).tolist() == [2 * (comm.rank + 1)]
        spar.ErrorFeedback(comm, "ok_topk:1.0", np.float64).reduce(values)
        assert values.array.tolist() == [2, 2]

    spar.run_threads(2, exchange)
    (comm,) = spar.Communicator.threads(1)
    with pytest.raises(ValueError, match="values is not contiguous"):
        comm.allreduce(OnDevice(np.zeros(4)[::2]))
    with pytest.raises(ValueError, match="values is on the device 2; expected a torch tensor, or an array in the"):
        comm.allreduce(OtherOnDevice(np.zeros(4)))
    with pytest.raises(ValueError, match="values is on the device 2; expected a torch tensor"):
        comm.allreduce(OtherOnDevice(np.zeros(4)), out=np.zeros(4))


def test_jax():
    jax = pytest.importorskip("jax")
    (comm,) = spar.Communicator.threads(1)
    values = jax.numpy.arange(3.0)
    with pytest.raises(ValueError, match="values is read-only; pass a writable array or out="):
        comm.allreduce(values)
    assert comm.allreduce(values, out=np.empty(3, np.float32)).tolist() == [0, 1, 2]

    @jax.jit
    def doubled_sum(x):
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return 2 * jax.pure_callback(lambda x: comm.allreduce(np.array(x)), result, x)

    assert doubled_sum(values).tolist() == [0, 2, 4]


def test_torch():
    torch = pytest.importorskip("torch")
    (comm,) = spar.Communicator.threads(1)
    for dtype in torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64:
        values = torch.tensor([[1, -2], [3, 4]], dtype=dtype)
        assert comm.allreduce(values) is values
        assert values.tolist() == [[1, -2], [3, 4]]
    with pytest.raises(ValueError, match=r"values requires a gradient; pass values.detach\(\)"):
        comm.allreduce(torch.ones(3, requires_grad=True))
    with pytest.raises(ValueError, match="values is not contiguous: its shape is .2, 2., its strides in elements"):
        comm.allreduce(torch.ones(2, 2).t())
    with pytest.raises(TypeError, match="values has elements of the type torch.uint8; expected float32"):
        comm.allreduce(torch.ones(3, dtype=torch.uint8))
    with pytest.raises(TypeError, match="values, of the type Tensor, does not give its memory through DLPack"):
        comm.allreduce(torch.ones(3, device="meta"))


def test_bfloat16_of_torch_is_rounded_once():
    torch = pytest.importorskip("torch")
    parts = [torch.randn(500, generator=torch.Generator().manual_seed(rank)).bfloat16() for rank in range(2)]
    expected = sum(part.float() for part in parts).bfloat16()
    for out in False, True:
        for result in spar.run_threads(
            2,
            lambda comm: comm.allreduce(
                parts[comm.rank].clone(), out=torch.empty(500, dtype=torch.bfloat16) if out else None
            ),
        ):
            assert torch.equal(result, expected)


BAD_ARRAYS = [
    (None, TypeError, "values is of the type NoneType; expected a NumPy array"),
    ([1.0], TypeError, "values is of the type list; expected a NumPy array"),
    (np.zeros(3, np.uint8), TypeError, "values has elements of the type uint8; expected float32, float64"),
    (np.zeros(3, ">f4"), TypeError, "values has elements of the type >f4; expected"),
    (np.zeros(3, complex), TypeError, "values has elements of the type complex128; expected"),
    (np.zeros(3, "f4,f4")["f0"], ValueError, "values is not contiguous"),
    (np.array(["a"]), TypeError, "values has elements of the type <U1; expected"),
    (np.zeros((4, 4))[:, ::2], ValueError, r"values is not contiguous: its shape is \(4, 2\), its strides in elements"),
    (np.zeros(4)[::-1], ValueError, "values is not contiguous"),
    (np.asfortranarray(np.zeros((2, 3))), ValueError, "values is not contiguous"),
    (np.broadcast_to(np.float32(1), (3,)), ValueError, "values is read-only; pass a writable array or out="),
    (b"1234", ValueError, "values is read-only"),
]


@pytest.mark.parametrize("bad, error, text", BAD_ARRAYS)
def test_bad_arrays(bad, error, text):
    (comm,) = spar.Communicator.threads(1)
    for call in comm.allreduce, comm.allgather, comm.broadcast, comm.reduce_scatter:
        with pytest.raises(error, match=text):
            call(bad)
    if error is ValueError:
        with pytest.raises(error, match=text.replace("values", "out", 1)):
            comm.allreduce(np.zeros(3), out=bad)


def test_bad_arguments():
    (comm,) = spar.Communicator.threads(1)
    values = np.zeros(2)
    for call, text in [
        (lambda: comm.allreduce(values, "add"), "op is 'add'; expected 'sum'"),
        (lambda: comm.allreduce(values, algorithm="rng"), "unknown system 'rng' at character 1"),
        (lambda: comm.allreduce(values, out=np.zeros(3)), "values has 2 elements, but out has 3"),
        (lambda: comm.broadcast(values, root=1), "root"),
        (lambda: comm.reduce_scatter(values, bounds=[0]), "bounds has 1 numbers; expected 2"),
        (lambda: comm.reduce_scatter(values, bounds=[0, 9]), "bound"),
        (lambda: comm.split(-1), "'colour' is -1; expected at least 0"),
        (lambda: spar.Communicator.threads(0), "'n' is 0; expected at least 1"),
    ]:
        with pytest.raises(spar.InvalidArgumentError, match=text):
            call()
    with pytest.raises(TypeError, match="op is <ufunc 'add'>, of the type numpy.ufunc; expected 'sum', 'average'"):
        comm.allreduce(values, np.add)
    with pytest.raises(TypeError, match="values has elements of the type float64, but out has elements of .* int32"):
        comm.allreduce(values, out=np.zeros(2, np.int32))
    assert (comm.allreduce(np.ones(2)) == 1).all()  # still works
