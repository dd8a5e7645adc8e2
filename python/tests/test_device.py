# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of CUDA devices, on a double of the CUDA runtime, which the loader finds as libcudart. Its streams go on at
random, and the processor cannot access its device memory."""

import ctypes
import os
import sys
import types

import numpy as np
import pytest
from values import TYPES

import spar

CUDA = ctypes.CDLL(os.environ["SPAR_CUDART"])
TO_DEVICE, TO_HOST = 1, 2


def check(code):
    assert code == 0


def new(allocate, *arguments):
    pointer = ctypes.c_void_p()
    check(allocate(ctypes.byref(pointer), *arguments))
    return pointer


class DeviceArray:
    """An array in device memory: the values, and what is written to them, are still to come in its stream."""

    def __init__(self, values, **interface):
        self.shape, self.dtype, self.nbytes = values.shape, values.dtype, values.nbytes
        self.stream = new(CUDA.cudaStreamCreateWithFlags, 1)
        self.pinned = new(CUDA.cudaMallocHost, ctypes.c_size_t(max(self.nbytes, 1)))
        self.memory = new(CUDA.cudaMalloc, ctypes.c_size_t(max(self.nbytes, 1)))
        self.interface = interface
        ctypes.memmove(self.pinned, np.ascontiguousarray(values).ctypes.data, self.nbytes)
        self._copy(self.memory, self.pinned, TO_DEVICE)

    def _copy(self, to, source, kind):
        check(CUDA.cudaMemcpyAsync(to, source, ctypes.c_size_t(self.nbytes), kind, self.stream))

    def get(self):
        self._copy(self.pinned, self.memory, TO_HOST)
        check(CUDA.cudaStreamSynchronize(self.stream))
        return np.frombuffer(ctypes.string_at(self.pinned, self.nbytes), self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.memory.value, False), "version": 3,
                "strides": None, "stream": self.stream.value, **self.interface}


class Tensor(ctypes.Structure):
    """DLManagedTensor of DLPack."""

    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Torch(DeviceArray):
    """As a tensor of torch: DLPack names no stream, and torch.cuda.current_stream does."""

    is_cuda, device = True, "cuda:0"
    __cuda_array_interface__ = None

    def data_ptr(self):
        return self.memory.value

    def __dlpack__(self, **_):
        self.extent = ctypes.c_int64(self.shape[0])
        self.tensor = Tensor(self.memory.value, 2, 0, 1, 2, self.dtype.itemsize * 8, 1,
                             ctypes.addressof(self.extent), None, 0, None, None)
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return 2, 0


def contribution(rank, dtype, n=300):
    return np.random.default_rng(rank).integers(-4, 5, n).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_allreduce(ranks, dtype):
    def reduce(comm):
        values = contribution(comm.rank, dtype)
        x = values.copy() if comm.rank == 1 else DeviceArray(values)  # ranks with and without a device in one call
        assert comm.allreduce(x) is x
        return x if comm.rank == 1 else x.get()

    expected = sum(contribution(rank, dtype) for rank in range(ranks))
    for _ in range(10):  # in other orders of the streams
        for result in spar.run_threads(ranks, reduce):
            assert result.dtype == dtype and np.array_equal(result, expected)


def test_out():
    def reduce(comm):
        values = np.full((2, 3), comm.rank + 1.0)
        x, out, here = DeviceArray(values), DeviceArray(np.zeros((2, 3))), np.empty((2, 3))
        assert comm.allreduce(x, "max", out=out) is out
        assert comm.allreduce(x, "prod", out=here) is here
        assert np.array_equal(x.get(), values)
        return out.get(), here

    for out, here in spar.run_threads(3, reduce):
        assert (out == 3).all() and (here == 6).all()


def test_other_calls():
    def call(comm):
        x = DeviceArray(np.full(5, comm.rank, np.float32))
        comm.broadcast(x, root=1)
        empty = DeviceArray(np.zeros(0))
        comm.allreduce(empty)
        y = DeviceArray(np.arange(4, dtype=np.float32))
        feedback = spar.ErrorFeedback(comm, "topka:k=1")
        feedback.reduce(y)
        return x.get(), y.get()

    for x, y in spar.run_threads(2, call):
        assert (x == 1).all() and np.array_equal(y, [0, 0, 0, 6])


def test_torch(monkeypatch):
    current = {}
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(current_stream=lambda device: current[device])
    monkeypatch.setitem(sys.modules, "torch", torch)
    (comm,) = spar.Communicator.threads(1)
    for _ in range(20):
        x = Torch(np.arange(100.0))
        current["cuda:0"] = types.SimpleNamespace(cuda_stream=x.stream.value)
        out = np.zeros(100)
        comm.allreduce(x, out=out)
        assert np.array_equal(out, np.arange(100.0))
        y = Torch(np.zeros(100))
        current["cuda:0"] = types.SimpleNamespace(cuda_stream=y.stream.value)
        comm.allreduce(out, out=y)
        assert np.array_equal(y.get(), out)


def test_refuses():
    (comm,) = spar.Communicator.threads(1)
    values = np.arange(12.0)
    for interface, error, text in [
        ({"strides": (16,), "shape": (6,)}, ValueError, r"values is not contiguous: its shape is \(6\)"),
        ({"data": (1 << 40, True)}, ValueError, "values is read-only"),
        ({"mask": values}, ValueError, "values has a mask"),
        ({"typestr": "<c16"}, TypeError, "values has elements of the type <c16; expected float32"),
        ({"typestr": ">f8"}, TypeError, "values has elements of the type >f8"),
        ({"typestr": "<u4"}, TypeError, "values has elements of the type"),
    ]:
        x = DeviceArray(values, **interface)
        with pytest.raises(error, match=text):
            comm.allreduce(x)
        assert np.array_equal(x.get(), values)
    x = DeviceArray(values, data=(values.ctypes.data, False))  # memory of the host
    with pytest.raises(spar.TransportError, match="cudaMemcpyAsync to the host failed: "):
        comm.allreduce(x)
