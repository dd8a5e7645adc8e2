# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hooks of spar.torch in DistributedDataParallel, on processes."""

import os
import re
import signal
import threading
import time
import unittest

import torch_ranks as ranks
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

import spar
import spar.torch


class Net(torch.nn.Module):
    def __init__(self, embedding=False):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(50, 10, sparse=True) if embedding else None
        self.layers = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))

    def forward(self, x):
        return self.layers(x if self.embedding is None else self.embedding(x))


def batch(rank, step, embedding=False):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, 50, (4, 3), generator=generator) if embedding else torch.randn(4, 10, generator=generator)


def make(embedding=False, **options):
    torch.manual_seed(0)
    return DDP(Net(embedding), bucket_cap_mb=0.001, **options)  # several buckets


def train(model, rank, steps, first=0, embedding=False, accumulate=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for part in range(accumulate - 1):
            with model.no_sync():
                model(batch(rank, 50 + accumulate * step + part, embedding)).square().mean().backward()
        model(batch(rank, step, embedding)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def with_and_without(comm, options, embedding, accumulate, participation=None):
    results = []
    for hooked in (False, True):
        model = make(embedding, **options)
        if hooked:
            eager = participation and spar.torch.eager(comm, participation)
            model.register_comm_hook(*(eager or spar.torch.ok_topk(comm, 1.0)))
        results.append(train(model, comm.rank, 4, embedding=embedding, accumulate=accumulate))
    return results


class HookTest(unittest.TestCase):
    def assert_same_as_ddp(self, options=None, embedding=False, accumulate=1):
        results = ranks.run(2, with_and_without, options or {}, embedding, accumulate)
        for rank, (plain, hooked) in enumerate(results):
            for p, q, other in zip(plain, hooked, results[0][1]):
                torch.testing.assert_close(q, p)
                self.assertTrue(torch.equal(q, other), f"rank {rank} has other weights than rank 0")

    def test_all_entries_give_the_weights_of_ddp(self):
        self.assert_same_as_ddp()

    def test_no_sync(self):
        self.assert_same_as_ddp(accumulate=3)

    def test_sparse_embedding(self):
        self.assert_same_as_ddp(embedding=True)

    def test_views_and_unused_parameters(self):
        self.assert_same_as_ddp({"gradient_as_bucket_view": True, "find_unused_parameters": True})

    def test_static_graph(self):
        self.assert_same_as_ddp({"static_graph": True})

    def test_residuals_survive_rebuilt_buckets_and_a_checkpoint(self):
        ranks.run(2, lossless_in_the_long_run)

    def test_a_scaler_skips_a_step_on_all_ranks(self):
        (scales, weights), (other_scales, other_weights) = ranks.run(2, overflow_on_one)
        self.assertEqual(scales, [256.0] * 2 + [128.0] * 4)
        self.assertEqual(other_scales, scales)
        for p, q in zip(weights, other_weights):
            self.assertTrue(torch.equal(p, q))
            self.assertTrue(p.isfinite().all())

    def test_ranks_with_fewer_batches(self):
        results = ranks.run(2, uneven)
        for p, q in zip(*results):
            self.assertTrue(torch.equal(p, q))

    def test_steps_that_do_not_wait_for_a_late_rank(self):
        ranks.run(3, eager_with_a_late_rank)

    def test_eager_steps_of_all_ranks_give_the_weights_of_ddp(self):
        for plain, hooked in ranks.run(2, with_and_without, {"gradient_as_bucket_view": True}, False, 2, "everyone"):
            for p, q in zip(plain, hooked):
                torch.testing.assert_close(q, p)

    def test_a_codec_and_the_warm_up(self):
        results = ranks.run(2, other_hooks)
        for p, q in zip(*results):
            self.assertTrue(torch.equal(p, q))


def lossless_in_the_long_run(comm):
    """The averages, and the mean of the residuals, are what the ranks have given."""
    model = make()
    layouts = set()
    state, hook = spar.torch.ok_topk(comm, 0.05)

    def recording(of, bucket):
        layouts.add((state.step, bucket.index(), tuple(id(p) for p in bucket.parameters())))
        return hook(of, bucket)

    model.register_comm_hook(state, recording)
    plain = Net()
    plain.load_state_dict(model.module.state_dict())
    given = [torch.zeros_like(p) for p in plain.parameters()]
    sent = [torch.zeros_like(p) for p in plain.parameters()]
    for step in range(6):
        if step == 4:
            saved = state.state_dict(model)
            assert saved["step"] == 4 and set(saved["residuals"]) == set(dict(plain.named_parameters()))
            state, hook = spar.torch.ok_topk(comm, 0.05)
            state.load_state_dict(saved, model=model)
            model = DDP(model.module, bucket_cap_mb=0.001)
            model.register_comm_hook(state, hook)
        for of in (model, plain):
            of.zero_grad()
            of(batch(comm.rank, step)).square().mean().backward()
        for total, p in zip(given, plain.parameters()):
            total += p.grad
        for total, p in zip(sent, model.module.parameters()):
            total += p.grad
    first, later = ({tuple(key) for step, *key in layouts if step == at} for at in (0, 1))
    assert first != later, "DDP has not rebuilt its buckets, so the test shows nothing"
    residuals = state.state_dict(model)["residuals"]
    for (name, p), total, arrived in zip(plain.named_parameters(), given, sent):
        mine = torch.stack([total, residuals[name].view_as(p)])
        comm.allreduce(mine.numpy(), "average")
        torch.testing.assert_close(arrived + mine[1], mine[0])
        assert mine[1].abs().sum() > 0


def eager_with_a_late_rank(comm):
    """Rank 2 begins a backward pass only when the others have ended theirs, but not in steps with new buckets."""
    done = comm.split(0)
    model = make()
    state, hook = spar.torch.eager(comm, "solo")
    model.register_comm_hook(state, hook)
    plain = Net()
    plain.load_state_dict(model.module.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    given = [torch.zeros_like(p) for p in plain.parameters()]
    sent = [torch.zeros_like(p) for p in plain.parameters()]
    late = []
    for step in range(8):
        if step == 5:
            saved = state.state_dict(model)
            state.load_state_dict(saved, model=model)
        together = step in (0, 1, 5)
        if comm.rank == 2 and not together:
            done.barrier()
        for of in (model, plain):
            of.zero_grad()
            of(batch(comm.rank, step)).square().mean().backward()
        if comm.rank != 2 and not together:
            done.barrier()
        if not together:
            late.append(state.presence[2])
        for total, p in zip(given, plain.parameters()):
            total += p.grad
        for total, p in zip(sent, model.module.parameters()):
            total += p.grad
    state.finish(optimizer)
    for total, p in zip(sent, model.module.parameters()):
        total += p.grad
    for arrived, mine in zip(sent, given):
        comm.allreduce(mine.numpy(), "average")
        torch.testing.assert_close(arrived, mine)
    assert spar.Presence.FRESH not in late, late
    assert spar.Presence.ABSENT in late, late


def overflow_on_one(comm):
    """Trains with scaled losses; in step 2, a batch of rank 1 has an infinite value."""
    model = make()
    model.register_comm_hook(*spar.torch.ok_topk(comm, 0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scales = []
    for step in range(6):
        x = batch(comm.rank, step)
        if step == 2 and comm.rank == 1:
            x[0] = torch.inf
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, [p.detach() for p in model.parameters()]


def uneven(comm):
    model = make()
    state, hook = spar.torch.ok_topk(comm, 0.1)
    model.register_comm_hook(state, hook)
    with model.join():
        weights = train(model, comm.rank, 2 + 2 * comm.rank)
    assert state.step == 4, state.step
    return weights


def other_hooks(comm):
    model = make()
    head = model.module.layers[2]
    model.register_comm_hook(
        *spar.torch.compressed(comm, "ring+bf16", warmup_steps=1, exclude=lambda p: p.dim() == 1 or p is head.weight)
    )
    return train(model, comm.rank, 3)


class FailureTest(unittest.TestCase):
    def fail(self, function, *arguments, **options):
        started = time.monotonic()
        ended = ranks.run(3, function, *arguments, may_fail=True, **options)
        self.assertLess(time.monotonic() - started, 30)
        return ended

    def assert_others_know(self, ended, failed, text):
        for rank, of in enumerate(ended):
            if rank != failed:
                self.assertEqual(of.kind, "PeerFailedError", of.trace)
                self.assertRegex(of.error, f"rank {failed} failed.*{text}")

    def assert_killed(self, ended):
        self.assertEqual(ended[1].code, -signal.SIGKILL)
        for rank in (0, 2):
            self.assertEqual(ended[rank].kind, "PeerFailedError", ended[rank].trace)
            self.assertIn("rank 1", ended[rank].error)

    def test_a_rank_that_raises_in_its_hook(self):
        ended = self.fail(train_until, raise_on_one)
        self.assertEqual((ended[1].kind, ended[1].error), ("ZeroDivisionError", "no density"))
        self.assert_others_know(ended, 1, "ZeroDivisionError: no density")

    def test_a_rank_that_catches_the_error_of_its_hook(self):
        ended = self.fail(catch_own_error)
        self.assertEqual(ended[1].kind, "OSError", ended[1].trace)
        self.assert_others_know(ended, 1, "ZeroDivisionError: no density")  # before the rank ends

    def test_a_rank_that_raises_outside_of_a_call(self):
        ended = self.fail(train_until, raise_on_one, True)
        self.assertEqual(ended[1].kind, "ZeroDivisionError", ended[1].trace)
        self.assert_others_know(ended, 1, "ZeroDivisionError: no density")

    def test_a_rank_that_is_killed(self):
        self.assert_killed(self.fail(train_until, die))

    def test_a_rank_that_fails_in_steps_that_do_not_wait(self):
        ended = self.fail(eager_until, raise_on_one)
        self.assertEqual((ended[1].kind, ended[1].error), ("ZeroDivisionError", "no density"))
        self.assert_others_know(ended, 1, "ZeroDivisionError: no density")
        self.assert_killed(self.fail(eager_until, die))

    def test_an_interrupt_while_a_rank_waits_for_late_gradients(self):
        ended = self.fail(be_interrupted, eager_until, interrupt=0)
        self.assertEqual(ended[0].kind, "KeyboardInterrupt", ended[0].trace)
        self.assertEqual(ended[2].kind, "PeerFailedError", ended[2].trace)
        self.assertRegex(ended[2].error, "rank 0 failed.*(KeyboardInterrupt|interrupted)")

    def test_an_interrupt_while_a_rank_waits(self):
        ended = self.fail(be_interrupted, interrupt=0)
        self.assertEqual(ended[0].kind, "KeyboardInterrupt", ended[0].trace)
        self.assertEqual(ended[2].kind, "PeerFailedError", ended[2].trace)
        self.assertRegex(ended[2].error, "rank 0 failed.*KeyboardInterrupt")

    def test_an_interrupt_while_the_backward_pass_runs_on_another_thread(self):
        ended = self.fail(be_interrupted_outside_of_python, interrupt=0)
        self.assertEqual(ended[0].kind, "KeyboardInterrupt", ended[0].trace)
        for rank in (1, 2):
            self.assertEqual(ended[rank].kind, "PeerFailedError", ended[rank].trace)
            self.assertRegex(ended[rank].error, "rank 0 failed.*KeyboardInterrupt")

    def test_ranks_with_other_buckets(self):
        ended = self.fail(disagree)
        kinds = {of.kind for of in ended}
        self.assertLessEqual(kinds, {"MismatchError", "PeerFailedError"}, [of.trace for of in ended])
        both = r"disagree on the dimension n: rank \d has \d+, rank \d has \d+"
        self.assertTrue(any(re.search(both, of.error) for of in ended), [of.error for of in ended])

    def test_a_communicator_that_is_not_that_of_ddp(self):
        for other, text in (
            (in_another_order, r"has the ranks \[0, 1, 2\] of .*, but the communicator has \[2, 1, 0\]"),
            (of_fewer_ranks, r"has the ranks \[0, 1, 2\] of .*, but the communicator has [12] ranks"),
        ):
            for of in self.fail(train_with, other):
                self.assertIn(of.kind, ("MismatchError", "PeerFailedError"), of.trace)
                self.assertRegex(of.error, text)

    def test_a_group_of_ddp_that_is_not_the_default_one(self):
        ranks.run(3, train_in_a_group)

    def test_a_sparse_embedding_that_a_rank_does_not_use(self):
        text = "RuntimeError: Expected sparse gradient to be defined"  # of DDP
        ended = self.fail(leave_out_embedding)
        self.assertIn(ended[1].error, f"{text}.")
        self.assert_others_know(ended, 1, text)


def train_until(comm, fail, in_forward=False):
    """Trains; `fail` is called with the ranks and the number of the step, in the hook or before it."""
    model = make()
    state, hook = spar.torch.ok_topk(comm, lambda step: (not in_forward and fail(comm, step)) or 0.1)
    model.register_comm_hook(state, hook)
    model.register_forward_pre_hook(lambda *_: fail(comm, state.step) if in_forward else None)
    train(model, comm.rank, 20)


def eager_until(comm, fail):
    """Makes steps that wait for no rank; `fail` is called with the ranks and the number of the step, in the hook."""
    model = make()
    state, hook = spar.torch.eager(comm, "solo", algorithm=lambda step: fail(comm, step) or "sparcml")
    model.register_comm_hook(state, hook)
    train(model, comm.rank, 3)
    state.finish(torch.optim.SGD(model.parameters(), lr=0.05))


def raise_on_one(comm, step):
    if comm.rank == 1 and step == 2:
        raise ZeroDivisionError("no density")


def catch_own_error(comm):
    try:
        train_until(comm, raise_on_one)
    except ZeroDivisionError:
        time.sleep(2)
        raise OSError("much later")


def die(comm, step):
    if comm.rank == 1 and step == 2:
        os.kill(os.getpid(), signal.SIGKILL)


def sleep_long(comm, step):
    if comm.rank == 1 and step == 2:
        time.sleep(12)
    elif comm.rank == 0 and step == 2:
        ranks.ready()


def be_interrupted(comm, until=None):
    try:
        (until or train_until)(comm, sleep_long)
    except KeyboardInterrupt:
        seconds = time.time() - os.path.getmtime(os.environ["READY"])
        assert seconds < 8, f"noticed Ctrl-C after {seconds:.1f} s, when rank 1 has slept"
        raise


def be_interrupted_outside_of_python(comm):
    """The main thread waits in C++, as it does where gradients are on a GPU, and notices the signal after the step."""
    model = make()
    state, hook = spar.torch.ok_topk(comm, 0.1)
    model.register_comm_hook(state, hook)
    for step in range(5):
        if comm.rank == 0 and step == 2:
            ranks.ready()
        elif comm.rank == 1 and step == 2:
            time.sleep(3)
        loss = model(batch(comm.rank, step)).square().mean()
        ended = torch.futures.Future()

        def backward():
            try:
                loss.backward()
                ended.set_result(None)
            except Exception as error:
                ended.set_exception(error)

        threading.Thread(target=backward).start()
        ended.wait()


def disagree(comm):
    torch.manual_seed(0)
    model = DDP(Net(), bucket_cap_mb=0.001 if comm.rank else 1, find_unused_parameters=True)
    model.register_comm_hook(*spar.torch.ok_topk(comm, 0.1))
    train(model, comm.rank, 3)


def train_with(comm, other):
    model = make()
    model.register_comm_hook(*spar.torch.ok_topk(other(comm), 0.1))
    train(model, comm.rank, 2)


def in_another_order(comm):
    return comm.split(0, comm.size - comm.rank)


def of_fewer_ranks(comm):
    return comm.split(int(comm.rank == 2))


def train_in_a_group(comm):
    group = torch.distributed.new_group([0, 2])
    part = comm.split(comm.rank % 2)
    if comm.rank != 1:
        model = make(process_group=group)
        model.register_comm_hook(*spar.torch.ok_topk(part, 0.1, process_group=group))
        train(model, comm.rank, 2)
    part.close()


def leave_out_embedding(comm):
    model = make(True, find_unused_parameters=True)
    model.register_comm_hook(*spar.torch.ok_topk(comm, 0.1))
    layers = model.module.layers
    for step in range(3):
        if step == 1 and comm.rank == 1:
            model.module.forward = lambda _: layers(torch.zeros(4, 10))
        model.zero_grad()
        model(batch(comm.rank, step, True)).square().mean().backward()


if __name__ == "__main__":
    unittest.main()
