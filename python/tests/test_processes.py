# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators of processes, over UCX."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from processes import run_processes

import spar

pytestmark = pytest.mark.skipif(not spar.has_ucx, reason="built without UCX")


def collectives():
    with spar.Communicator.from_env() as comm:
        assert (comm.rank, comm.size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        values = np.full(1000, comm.rank + 1, np.float32)
        assert (comm.allreduce(values) == comm.size * (comm.size + 1) / 2).all()
        pending = comm.start_allreduce(values, "average", "ring")
        comm.barrier()
        assert pending.done()
        part = comm.split(comm.rank % 2)
        assert part.allreduce(np.ones(1))[0] == part.size
        part.close()


def test_collectives():
    run_processes(3, collectives)


def close_without_drain():
    comm = spar.Communicator.from_env()
    twin = comm.split(0)
    partial = spar.Partial(comm, 2, participation="solo")
    partial.reduce(np.ones(2, np.float32))
    if comm.rank == 1:
        comm.close()
        with pytest.raises(spar.InvalidArgumentError, match="closed"):
            partial.reduce(np.ones(2, np.float32))
    else:
        with pytest.raises((spar.MismatchError, spar.PeerFailedError), match="rank 1"):
            partial.drain(np.ones(2, np.float32))
    twin.barrier()  # rank 1 does not end before the others have learnt of it


def test_a_communicator_that_is_closed_ends_its_partial_allreduces():
    run_processes(3, close_without_drain, keep_going=True)


def raise_on_rank_1():
    with spar.Communicator.from_env() as comm:
        if comm.rank == 1:
            raise ValueError("bad data")
        try:
            comm.barrier()
        except spar.PeerFailedError as error:
            print(f"rank {comm.rank} got: {error}", flush=True)
            raise


def test_an_error_of_a_rank_ends_the_others_with_its_reason():
    text = run_processes(2, raise_on_rank_1, expect=1)
    assert "rank 0 got: rank 1" in text
    assert "ValueError: bad data" in text


def interrupt_rank_0():
    with spar.Communicator.from_env() as comm:
        pids = np.zeros(comm.size, np.int64)
        pids[comm.rank] = os.getpid()
        comm.allgather(pids)
        try:
            if comm.rank == 1:
                time.sleep(0.3)  # rank 0 waits in its barrier
                os.kill(pids[0], signal.SIGINT)
                time.sleep(0.3)
            comm.barrier()
        except (KeyboardInterrupt, spar.PeerFailedError) as error:
            print(f"rank {comm.rank} got: {type(error).__name__}: {error}", flush=True)


def test_ctrl_c():
    text = run_processes(2, interrupt_rank_0)
    assert "rank 0 got: KeyboardInterrupt" in text
    assert "rank 1 got: PeerFailedError" in text and "interrupted by a signal" in text


def die_on_rank_1():
    with spar.Communicator.from_env() as comm:
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            comm.allreduce(np.ones(3))
        except spar.PeerFailedError as error:
            print(f"rank {comm.rank} got: {error}", flush=True)
            raise


def test_a_rank_that_is_killed():
    text = run_processes(2, die_on_rank_1, expect=128 + signal.SIGKILL)
    assert "rank 0 got: " in text
    assert "rank 1" in text.split("rank 0 got: ")[1]


def lose_rank_1():
    comm = spar.Communicator.from_env()
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.barrier()
    except spar.PeerFailedError:
        with comm.shrink() as rest:
            print(f"{rest.rank} of {rest.size}: {rest.allreduce(np.ones(1))[0]}", flush=True)


def test_shrink():
    text = run_processes(3, lose_rank_1, expect=128 + signal.SIGKILL, keep_going=True)
    assert "0 of 2: 2.0" in text
    assert "1 of 2: 2.0" in text


def take_one():
    with spar.Communicator.from_env() as comm:
        joiner = subprocess.Popen([sys.executable, *sys.argv[:2], "joined"]) if comm.rank == 0 else None
        while (wider := comm.grow()) is None:
            time.sleep(0.02)
        assert (wider.rank, wider.size) == (comm.rank, 3)
        assert wider.allreduce(np.ones(1)) == [3]
        wider.close()
        comm.barrier()
        assert joiner is None or joiner.wait(30) == 0


def joined():
    with spar.Communicator.join() as comm:
        assert comm.rank == 2
        assert comm.allreduce(np.ones(1)) == [3]


def test_grow():
    run_processes(2, take_one)


def test_missing_variables(monkeypatch):
    for name in "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "x")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(spar.InvalidArgumentError, match="WORLD_SIZE"):
        spar.Communicator.from_env()
