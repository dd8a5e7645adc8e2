# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What holds for all calls: started calls, errors, the end of a communicator, fork."""

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import spar


def test_started_calls_keep_their_order():
    def many(comm):
        x = np.ones(4)
        started = [comm.start_allreduce(x, "sum", "ring") for _ in range(10)]
        comm.allreduce(x)  # waits for all of them
        assert all(call.done() for call in started)
        assert started[0].result() is x
        return x[0]

    assert spar.run_threads(3, many) == [3.0**11] * 3


def test_await_and_callbacks():
    def rank(comm):
        ended = threading.Event()

        async def both():
            x, y = np.ones(2), np.full(2, comm.rank)
            second = comm.start_allreduce(y, "max")
            second.add_done_callback(lambda call: ended.set() if call.done() else None)
            await asyncio.gather(comm.start_allreduce(x), second)
            return x[0], y[0]

        result = asyncio.run(both())
        assert ended.wait(10)
        return result

    assert spar.run_threads(2, rank) == [(2, 1)] * 2


def test_calls_keep_nothing_alive():
    (comm,) = spar.Communicator.threads(1)
    values = np.ones(1).view(type("Values", (np.ndarray,), {}))
    pending = comm.start_allreduce(values)
    pending.add_done_callback(lambda call: None)
    pending.result()
    ends = [weakref.ref(of) for of in (values, comm)]
    gc.disable()  # by reference counts alone
    try:
        del comm, pending, values
        until = time.monotonic() + 10
        while any(end() is not None for end in ends) and time.monotonic() < until:
            time.sleep(0.01)
        assert [end() for end in ends] == [None, None]
    finally:
        gc.enable()


def test_an_object_that_lives_until_the_process_ends():
    program = "import ctypes, spar; ctypes.pythonapi.Py_IncRef(ctypes.py_object(spar.Communicator.threads(1)[0]))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_started_call_reports_its_error():
    (comm,) = spar.Communicator.threads(1)
    with pytest.raises(TypeError, match="values is of the type list"):
        comm.start_allreduce([1]).result()
    assert comm.start_barrier().wait() is None


def test_ranks_that_disagree():
    def disagree(comm):
        comm.allreduce(np.zeros(3 + comm.rank))

    with pytest.raises(spar.MismatchError, match="3.*4|4.*3"):
        spar.run_threads(2, disagree)


def test_the_first_error_of_a_rank_ends_the_others():
    texts = []

    def fail(comm):
        if comm.rank == 1:
            raise KeyError("boom")
        try:
            comm.barrier()
        except spar.PeerFailedError as error:
            texts.append(str(error))
            raise

    with pytest.raises(KeyError, match="boom"):
        spar.run_threads(3, fail)
    assert len(texts) == 2
    assert all("rank 1" in text and "KeyError: 'boom'" in text for text in texts)


def test_timeout():
    first, _second = spar.Communicator.threads(2)
    first.deadline = 0.2
    assert first.deadline == 0.2
    with pytest.raises(spar.TimeoutError) as error:
        first.barrier()
    assert isinstance(error.value, TimeoutError)
    assert isinstance(error.value, spar.Error)


def test_closed():
    with spar.Communicator.threads(1)[0] as comm:
        pending = comm.start_allreduce(np.ones(1))
    assert pending.result() == [1]
    comm.close()
    for call in comm.barrier, lambda: comm.rank, lambda: comm.start_barrier(), lambda: comm.abort("late"):
        with pytest.raises(spar.InvalidArgumentError, match="the communicator is closed"):
            call()


def send_to_self_after(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.mark.parametrize("started", [False, True])
def test_ctrl_c_ends_a_call_on_all_ranks(started):
    comms = spar.Communicator.threads(2)
    if started:
        comms[0].start_barrier()
    send_to_self_after(0.1)
    with pytest.raises(KeyboardInterrupt):
        comms[0].allreduce(np.ones(1))
    for comm in comms:
        with pytest.raises(spar.PeerFailedError, match="interrupted by a signal"):
            comm.barrier()


def test_abort_from_another_thread_ends_a_call():
    comms = spar.Communicator.threads(2)
    threading.Timer(0.1, comms[0].abort, ("enough",)).start()
    with pytest.raises(spar.PeerFailedError, match="enough"):
        comms[0].barrier()
    with pytest.raises(spar.PeerFailedError, match="enough"):
        comms[1].barrier()


def test_shrink_among_threads():
    def go_on(comm):
        if comm.rank == 1:
            comm.abort("done")
            return None
        with pytest.raises(spar.PeerFailedError):
            comm.barrier()
        with comm.shrink() as rest:
            with pytest.raises(spar.InvalidArgumentError, match="closed"):
                comm.barrier()
            return rest.rank, rest.allreduce(np.ones(1))[0]

    assert spar.run_threads(3, go_on) == [(0, 2), None, (1, 2)]
    with pytest.raises(spar.InvalidArgumentError):
        spar.Communicator.threads(1)[0].grow()


def test_abort_has_a_reason():
    comms = spar.Communicator.threads(2)
    comms[0].abort("no more data")
    for comm in comms:
        with pytest.raises(spar.PeerFailedError, match="no more data"):
            comm.barrier()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork():
    (comm,) = spar.Communicator.threads(1)
    child = os.fork()
    if child == 0:
        try:
            comm.barrier()
        except RuntimeError as error:
            os._exit(0 if "before a fork" in str(error) and type(error) is RuntimeError else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with multiprocessing.get_context("fork").Pool(1) as pool:  # whose process frees what it has inherited
        assert pool.apply(abs, (-1,)) == 1
    comm.barrier()
