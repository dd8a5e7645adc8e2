# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Error feedback, partial allreduces, and compositions."""

import mmap
import random
import threading
import time

import numpy as np
import pytest

import spar


def test_error_feedback_loses_nothing():
    n = 100
    inputs = np.random.default_rng(1).integers(-9, 9, (3, 4, n)).astype(np.float32)  # by rank and step

    def steps(comm):
        reduce = spar.ErrorFeedback(comm, spar.Composition(select="exact_topk:k=10", by="gather_and_merge"))
        assert reduce.residual.size == 0
        total = np.zeros(n, np.float32)
        for step, mine in enumerate(inputs[comm.rank]):
            if step == 1:
                total += reduce.reduce_sparse(mine).to_dense()
            elif step == 2:
                total += reduce.start_reduce_sparse(mine).result().to_dense()
            else:
                x = mine.copy()
                assert (reduce.reduce(x) if step == 0 else reduce.start_reduce(x).result()) is x
                assert np.count_nonzero(x) <= 30
                total += x
        return total, reduce.residual

    results = spar.run_threads(3, steps)
    sent_and_kept = results[0][0] + sum(residual for _, residual in results)
    assert np.array_equal(sent_and_kept, inputs.sum(axis=(0, 1)))
    assert np.count_nonzero(results[0][1]) > 0
    for total, _ in results:
        assert np.array_equal(total, results[0][0])


def test_64_bit_indices():
    def step(comm, bits):
        reduce = spar.ErrorFeedback(comm, "ok_topk:0.5", index_bits=bits)
        x = np.arange(8, dtype=np.float32)
        reduce.reduce(x, "average")
        return x.tolist(), reduce.residual.tolist(), comm.last_call.bytes_sent, reduce.save()

    narrow, wide = (spar.run_threads(2, lambda comm: step(comm, bits)) for bits in (32, 64))
    assert [of[:2] for of in wide] == [of[:2] for of in narrow]
    assert wide[0][2] > narrow[0][2]
    (comm,) = spar.Communicator.threads(1)
    again = spar.ErrorFeedback(comm, "ok_topk:0.5")
    again.take_over(wide[0][3])
    assert again.residual.tolist() == wide[0][1]
    with pytest.raises(spar.InvalidArgumentError, match="'index_bits' is 16; expected 32 or 64"):
        spar.ErrorFeedback(comm, "topka:0.1", index_bits=16)


def test_too_many_values_for_32_bits():
    (comm,) = spar.Communicator.threads(1)
    n = (1 << 32) + 1
    NORESERVE = 0x4000  # mmap has a name for it since Python 3.13
    memory = mmap.mmap(-1, 4 * n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)  # never touched
    values = np.frombuffer(memory, np.float32)
    with pytest.raises(spar.InvalidArgumentError, match=f"values has {n} elements, but .* with index_bits=64"):
        spar.ErrorFeedback(comm, "topka:0.1").reduce(values)


def test_saved_state():
    (comm,) = spar.Communicator.threads(1)
    reduce = spar.ErrorFeedback(comm, "topka:k=1", np.float64)
    reduce.reduce(np.array([1.0, 2, 3]))
    saved = reduce.save()
    again = spar.ErrorFeedback(comm, "topka:k=1", "float64")
    again.load(saved)
    assert again.residual.tolist() == [1, 2, 0]
    for _ in range(2):
        fresh = spar.ErrorFeedback(comm, "topka:k=1", np.dtype("float64"))
        fresh.take_over(saved)
        fresh.take_over(saved)
        assert fresh.residual.tolist() == [2, 4, 0]
    with pytest.raises(spar.InvalidArgumentError, match="saved|bytes"):
        again.load(saved[:-1])


def test_bad_error_feedback():
    (comm,) = spar.Communicator.threads(1)
    with pytest.raises(ValueError, match="no selector"):
        spar.ErrorFeedback(comm, "ring")
    with pytest.raises(ValueError, match="algorithm is None; expected a composition with a selector"):
        spar.ErrorFeedback(comm, None)
    with pytest.raises(TypeError, match="dtype is int8; expected float32"):
        spar.ErrorFeedback(comm, "topka:k=1", np.int8)
    with pytest.raises(ValueError, match="dtype is int32; error feedback takes float32"):
        spar.ErrorFeedback(comm, "topka:k=1", np.int32)
    reduce = spar.ErrorFeedback(comm, "topka:k=1")
    with pytest.raises(TypeError, match="values has elements of the type float64; expected float32, the dtype of"):
        reduce.reduce(np.zeros(3))
    reduce.reduce(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="3.*4|4.*3"):
        reduce.reduce(np.zeros(4, np.float32))


def test_partial():
    n, rounds = 5, 4

    def steps(comm):
        reduce = spar.Partial(comm, n, "float64", "quorum:1")
        total = np.zeros(n)
        for step in range(rounds):
            x = np.full(n, 10.0**step)
            present = reduce.reduce(x) if step % 2 else reduce.start_reduce(x).result()
            assert len(present) == comm.size
            assert spar.Presence.FRESH in present
            total += x
        rest = np.zeros(n)
        reduce.drain(rest)
        return (total + rest).tolist()

    assert spar.run_threads(3, steps) == [[3 * 1111.0] * n] * 3


def test_a_late_rank_does_not_hold_up_the_others():
    the_others_have_ended = threading.Barrier(3)

    def steps(comm):
        reduce = spar.Partial(comm, 2, "float64", "solo")
        x, rest = np.array([1.0, comm.rank]), np.zeros(2)
        if comm.rank == 2:
            the_others_have_ended.wait(60)  # outside of spar: a thread of the communicator takes part
        present = reduce.reduce(x)
        if comm.rank != 2:
            the_others_have_ended.wait(60)
        assert present[2] == spar.Presence.ABSENT
        assert reduce.start_drain(rest).result()[2] == spar.Presence.STALE
        return (x + rest).tolist()

    assert spar.run_threads(3, steps) == [[3, 3]] * 3


@pytest.mark.parametrize("seed", range(3))
def test_rounds_between_other_calls(seed):
    def steps(comm):
        same, own = random.Random(seed), random.Random(100 * seed + comm.rank)  # `same` is equal on all ranks
        for n in 1, 20_000:
            who = same.choice(["solo", "majority", "quorum:2", "everyone"])
            reduce = spar.Partial(comm, n, "float64", who, tau=same.choice([0, 1, 8]))
            total = np.zeros(n)
            for _ in range(20):
                time.sleep(own.choice([0, 0, 0, 0.003]))
                x = np.ones(n)
                call = same.randrange(4)
                if call == 0:
                    assert comm.allreduce(x, algorithm="ring")[0] == comm.size
                elif call == 1:
                    spar.Partial(comm, 3, participation=who).reduce(np.ones(3, np.float32))  # ends at once
                    comm.barrier()
                else:
                    reduce.reduce(x) if call == 2 else reduce.start_reduce(x).result()
                    total += x - comm.size
            rest = np.zeros(n)
            reduce.drain(rest)
            assert not (total + rest).any()

    spar.run_threads(4, steps)


def test_a_partial_that_is_not_drained():
    def leave(comm):
        spar.Partial(comm, 2, participation="solo").reduce(np.ones(2, np.float32))

    spar.run_threads(3, leave)  # its end waits for no thread of Python


def test_bad_partial():
    (comm,) = spar.Communicator.threads(1)
    with pytest.raises(ValueError, match="'participation' is 'all'; expected everyone, solo"):
        spar.Partial(comm, 3, participation="all")
    with pytest.raises(ValueError, match="'tau' is -1; expected at least 0"):
        spar.Partial(comm, 3, tau=-1)
    with pytest.raises(TypeError, match="values has elements of the type float64; expected int32"):
        spar.Partial(comm, 3, np.int32).reduce(np.zeros(3))


def test_composition():
    assert str(spar.Composition()) == "by=cheapest"
    assert str(spar.Composition("ring", store="qsgd:8")) == "store=qsgd:8,by=ring"
    (comm,) = spar.Communicator.threads(1)
    for algorithm in spar.Composition("ring", store="qsgd:8"), spar.Composition(over="tree", by="chains"):
        assert comm.allreduce(np.ones(3, np.float32), algorithm=algorithm).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="rang"):
        comm.allreduce(np.ones(3, np.float32), algorithm=spar.Composition("rang"))
