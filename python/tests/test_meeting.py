# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators of processes that another library has brought together."""

import os
import threading

import numpy as np
import pytest
from processes import run_processes

import spar
from spar import _spar

pytestmark = pytest.mark.skipif(not spar.has_ucx, reason="built without UCX")


class Store:
    """A store among the threads of a process, with the functions of torch's stores that spar uses."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()

    def put(self, key, value):
        with self.changed:
            value = self.values.setdefault(key, value)
            self.changed.notify_all()
            return value

    def wait(self, key, seconds):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, seconds)
            return self.values.get(key)


def test_threads_that_meet_in_a_store():
    store, results = Store(), [None, None]

    def rank(r):
        with spar.Communicator(_spar.handle_from_store(store.put, store.wait, r, 2)) as comm:
            results[r] = comm.allreduce(np.array([1.0, r])).tolist()

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[2, 1]] * 2


def test_an_error_of_the_store_is_raised():
    def put(key, value):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        _spar.handle_from_store(put, lambda key, seconds: None, 0, 2)
    with pytest.raises(spar.InvalidArgumentError, match="rank"):
        _spar.handle_from_store(Store().put, Store().wait, 2, 2)


def groups_of_torch():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    with spar.Communicator.from_torch() as comm:
        assert (comm.rank, comm.size) == (dist.get_rank(), dist.get_world_size())
        assert comm.allreduce(np.ones(1)) == [comm.size]
        with spar.Communicator.from_torch(dist.group.WORLD) as again:
            assert again.allreduce(np.ones(1)) == [comm.size]
    odd = dist.new_group([1, 2])
    if dist.get_rank() > 0:
        with spar.Communicator.from_torch(odd) as comm:
            assert (comm.rank, comm.size) == (dist.get_rank() - 1, 2)
            assert comm.allreduce(np.ones(1)) == [2]
    else:
        with pytest.raises(spar.InvalidArgumentError, match="this process is no rank of the group"):
            spar.Communicator.from_torch(odd)
    store = dist.PrefixStore("mine", dist.distributed_c10d._get_default_store())
    with spar.Communicator.from_torch(store, dist.get_rank(), dist.get_world_size()) as comm:
        comm.barrier()
    dist.destroy_process_group()


def test_torch():
    pytest.importorskip("torch")
    with pytest.raises(spar.InvalidArgumentError, match="torch has no process group"):
        spar.Communicator.from_torch()
    run_processes(3, groups_of_torch)


class Ranks:
    """What spar uses of an mpi4py communicator, by a communicator of spar."""

    def __init__(self, comm):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size

    def allgather(self, text):
        return [text] * self.size

    def bcast(self, value):
        text = repr(value).encode()
        length = self.comm.broadcast(np.array([len(text)]))[0]
        letters = np.zeros(length, np.int32)
        if self.rank == 0:
            letters[:] = list(text)
        return eval(bytes(self.comm.broadcast(letters).tolist()))


def ranks_of_mpi4py():
    with spar.Communicator.from_env() as comm:
        before = dict(os.environ)
        with spar.Communicator.from_mpi4py(Ranks(comm)) as again:
            assert (again.rank, again.size) == (comm.rank, comm.size)
            assert again.allreduce(np.ones(1)) == [comm.size]
        assert dict(os.environ) == before


def test_mpi4py():
    run_processes(2, ranks_of_mpi4py)
