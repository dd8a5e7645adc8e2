# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spar.torch without DDP: reductions, residuals, optimizers and local steps, among threads."""

import gc
import threading
import time
import unittest
import weakref

import torch

import spar
import spar.torch

SIZES = {"a": 300, "b": 500, "c": 200}


def model():
    module = torch.nn.Module()
    for name, size in SIZES.items():
        setattr(module, name, torch.nn.Parameter(torch.zeros(size)))
    return module


def gradient(rank, step, n=1000):
    return torch.randn(n, generator=torch.Generator().manual_seed(1000 * step + rank))


def mean(tensors):
    return sum(tensors) / len(tensors)


def steps(comm, state, of, count, first=0, order="abc"):
    """Makes `count` steps in one bucket, with the parameters in `order`; returns the averages, in the order abc."""
    averages = []
    for step in range(first, first + count):
        parts = dict(zip(SIZES, gradient(comm.rank, step).split(list(SIZES.values()))))
        bucket = torch.cat([parts[name] for name in order])
        state.start([getattr(of, name) for name in order], bucket)
        state.end_step()
        parts = dict(zip(order, bucket.split([SIZES[name] for name in order])))
        averages.append(torch.cat([parts[name] for name in SIZES]))
    return averages


def all_of(residuals):
    return torch.cat([residuals.get(name, torch.zeros(size)) for name, size in SIZES.items()])


class ReductionTest(unittest.TestCase):
    def test_no_value_is_lost_when_parameters_move_to_other_buckets(self):
        def train(comm):
            of = model()
            state, _ = spar.torch.ok_topk(comm, 0.05, exclude=[of.c])
            sent = steps(comm, state, of, 3) + steps(comm, state, of, 3, first=3, order="bca")
            return sum(sent), state.state_dict(of)

        results = spar.run_threads(3, train)
        given = mean([sum(gradient(rank, step) for step in range(6)) for rank in range(3)])
        kept = mean([all_of(saved["residuals"]) for _, saved in results])
        torch.testing.assert_close(results[0][0] + kept, given)
        torch.testing.assert_close(results[0][0][-200:], given[-200:])  # excluded: nothing is kept
        self.assertNotIn("c", results[0][1]["residuals"])
        self.assertGreater(kept.abs().sum(), 100)  # otherwise the test shows nothing
        for sent, _ in results:
            self.assertTrue(torch.equal(sent, results[0][0]))

    def test_residuals_are_sent_in_another_bucket_and_at_another_density(self):
        def train(comm):
            of = model()
            state, _ = spar.torch.ok_topk(comm, lambda step: 1.0 if step == 2 else 0.05)
            sent = steps(comm, state, of, 2) + steps(comm, state, of, 1, first=2, order="bca")
            return sum(sent), state.state_dict(of)["residuals"]

        given = mean([sum(gradient(rank, step) for step in range(3)) for rank in range(2)])
        for sent, residuals in spar.run_threads(2, train):
            torch.testing.assert_close(sent, given)
            self.assertEqual(float(all_of(residuals).abs().sum()), 0)

    def test_a_job_with_fewer_ranks_takes_over_the_residuals(self):
        def train(comm):
            of = model()
            state, _ = spar.torch.topk(comm, 0.01)
            steps(comm, state, of, 2)
            return state.state_dict(of)

        saved = spar.run_threads(3, train)

        def resume(comm):
            of = model()
            state, _ = spar.torch.topk(comm, 0.01)
            state.load_state_dict(*saved[comm.rank :: comm.size], model=of)
            self.assertEqual(state.step, 2)
            again = state.state_dict(of)
            sent = steps(comm, state, of, 1, first=2)[0]
            return again, sent, state.state_dict(of)

        results = spar.run_threads(2, resume)
        before = mean([all_of(of["residuals"]) for of in saved])
        torch.testing.assert_close(mean([all_of(again["residuals"]) for again, _, _ in results]), before)
        after = mean([all_of(of["residuals"]) for _, _, of in results])
        torch.testing.assert_close(results[0][1] + after, before + mean([gradient(rank, 2) for rank in range(2)]))

    def test_states_that_do_not_fit_are_refused(self):
        def attempt(comm):
            of = model()
            state, _ = spar.torch.topk(comm, 0.01)
            saved = {"step": 1, "ranks": 1, "residuals": {"a": torch.ones(3)}}
            with self.assertRaisesRegex(ValueError, "residual of a has 3 values; the parameter has 300"):
                state.load_state_dict(saved, model=of)
            saved["residuals"] = {"z": torch.ones(3)}
            with self.assertRaisesRegex(ValueError, "residual z belongs to no parameter"):
                state.load_state_dict(saved, model=of)
            with self.assertRaisesRegex(ValueError, "2 saved states of a job of 1 ranks"):
                state.load_state_dict(saved, saved, model=of)

        spar.run_threads(1, attempt)

    def test_warm_up_and_density_schedule(self):
        def train(comm):
            of = model()
            state, _ = spar.torch.topk(comm, lambda step: 0.5 if step < 3 else 0.001, warmup_steps=2)
            return steps(comm, state, of, 4)

        averages = spar.run_threads(2, train)[0]
        for step in range(2):
            torch.testing.assert_close(averages[step], mean([gradient(0, step), gradient(1, step)]))
        self.assertGreaterEqual(int((averages[2] != 0).sum()), 500)
        self.assertLess(int((averages[3] != 0).sum()), 10)

    def test_decay_forgets_the_residual(self):
        def train(comm, decay, order="abc"):
            of = model()
            state, _ = spar.torch.topk(comm, 0.001, decay=decay)
            steps(comm, state, of, 1)
            steps(comm, state, of, 1, first=1, order=order)
            return all_of(state.state_dict(of)["residuals"])

        kept = spar.run_threads(1, lambda comm: train(comm, 0.0))[0]
        last = gradient(0, 1)
        largest = last.abs().argmax()
        last[largest] = 0
        torch.testing.assert_close(kept, last)
        first = gradient(0, 0)
        first[first.abs().argmax()] = 0
        expected = gradient(0, 1) + 0.5 * first
        expected[expected.abs().argmax()] = 0
        for order in ("abc", "bca"):  # in the same bucket, and in another one
            half = spar.run_threads(1, lambda comm, order=order: train(comm, 0.5, order))[0]
            torch.testing.assert_close(half, expected)

    def test_buckets_with_decay_do_not_wait_for_each_other(self):
        began = threading.Event()

        def train(comm):
            comm.deadline = 20
            of = model()
            state, _ = spar.torch.topk(comm, 0.1, decay=0.5)
            for step in range(3):
                if step == 2 and comm.rank == 1:
                    self.assertTrue(began.wait(5), "rank 0 waits for rank 1 before it has begun its buckets")
                for p in (of.a, of.b, of.c):
                    state.start([p], torch.ones(p.numel()))
                if step == 2 and comm.rank == 0:
                    began.set()
                state.end_step()

        spar.run_threads(2, train)

    def test_no_residual_keeps_a_value_that_is_not_finite(self):
        def train(comm, make, value):
            of = model()
            state, _ = make(comm)
            averages = []
            for step in range(3):
                values = gradient(comm.rank, step)
                if step == 1 and comm.rank == 1:
                    values[7:900] = value
                state.start([of.a, of.b, of.c], values)
                state.end_step()
                averages.append(bool(values.isfinite().all()))
            self.assertTrue(all_of(state.state_dict(of)["residuals"]).isfinite().all())
            return averages

        two_bits = "select=exact_topk:0.02,store=coo+qsgd:2,by=dsar_split"
        for make in (
            lambda comm: spar.torch.ok_topk(comm, 0.01),
            lambda comm: spar.torch.topk(comm, 0.01),
            lambda comm: spar.torch.compressed(comm, two_bits, feedback=True),
        ):
            for value in (torch.inf, -torch.inf, torch.nan):  # a GradScaler skips the step on both ranks
                results = spar.run_threads(2, lambda comm: train(comm, make, value))
                self.assertEqual(results, [[True, False, True]] * 2)

    def test_steps_keep_no_values(self):
        (comm,) = spar.Communicator.threads(1)
        of = model()
        state, _ = spar.torch.ok_topk(comm, 0.1, exclude=[of.a])
        values = gradient(0, 0)
        state.start([of.a, of.b, of.c], values)
        state.end_step()
        end = weakref.ref(values)
        gc.disable()  # by reference counts alone
        try:
            del values
            until = time.monotonic() + 10
            while end() is not None and time.monotonic() < until:
                time.sleep(0.01)
            self.assertIsNone(end())
        finally:
            gc.enable()
        comm.close()

    def test_values_of_other_types(self):
        def train(comm):
            of = model()
            results = []
            for dtype in (torch.float64, torch.float16, torch.bfloat16):
                state, _ = spar.torch.ok_topk(comm, 1.0)
                values = gradient(comm.rank, 0).to(dtype)
                state.start([of.a, of.b, of.c], values)
                state.end_step()
                results.append(values)
            return results

        for values in spar.run_threads(2, train)[0]:
            expected = mean([gradient(rank, 0).to(values.dtype).double() for rank in range(2)])
            torch.testing.assert_close(values, expected.to(values.dtype))

    def test_codecs_need_no_residual(self):
        def train(comm):
            of = model()
            state, _ = spar.torch.two_shot(comm, 8)
            averages = steps(comm, state, of, 1)
            self.assertEqual(state.state_dict(of)["residuals"], {})
            return averages[0]

        average = spar.run_threads(2, train)[0]
        exact = mean([gradient(0, 0), gradient(1, 0)])
        self.assertLess((average - exact).abs().max(), 0.1)
        self.assertFalse(torch.equal(average, exact))

    def test_bad_arguments(self):
        comm = spar.Communicator.threads(1)[0]
        for call, text in (
            (lambda: spar.torch.ok_topk(comm, 0), "density is 0"),
            (lambda: spar.torch.topk(comm, 1.5), "density is 1.5"),
            (lambda: spar.torch.two_shot(comm, 3), "bits is 3; expected 2, 4 or 8"),
            (lambda: spar.torch.topk(comm, decay=2), "decay is 2"),
            (lambda: spar.torch.topk(comm, warmup_steps=-1), "warmup_steps is -1"),
            (lambda: spar.torch.register_fsdp(model(), None), "fully_shard"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                call()
        layer = torch.nn.Linear(2, 2)
        for exclude, text in ((layer.bias, "Parameter"), (layer, "Linear"), ("bias", "str"), (["bias"], "'bias'")):
            with self.assertRaisesRegex(TypeError, f"exclude has {text}; expected parameters"):
                spar.torch.topk(comm, exclude=exclude)
        comm.close()


class SparseGradientTest(unittest.TestCase):
    def test_rows_of_embeddings(self):
        def gradient_of(rank):
            rows = torch.tensor([[3, 1, 3 + rank]])  # not coalesced
            return torch.sparse_coo_tensor(rows, torch.arange(12.0).view(3, 4) + rank, (10, 4))

        def train(comm):
            state, _ = spar.torch.ok_topk(comm)
            future = state.start([torch.nn.Parameter(torch.zeros(10, 4))], gradient_of(comm.rank))
            state.end_step()
            return future.value()

        expected = (gradient_of(0).to_dense() + gradient_of(1).to_dense()) / 2
        for average in spar.run_threads(2, train):
            torch.testing.assert_close(average.to_dense(), expected)
            self.assertEqual(average.indices().tolist(), [[1, 3, 4]])

    def test_ranks_without_rows(self):
        def train(comm):
            state, _ = spar.torch.ok_topk(comm)
            none = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, 3), (4, 5, 3))
            some = torch.sparse_coo_tensor(torch.tensor([[3], [2]]), torch.ones(1, 3), (4, 5, 3))
            empty = state.start([1], none)
            future = state.start([2], some if comm.rank else none)
            state.end_step()
            return empty.value(), future.value()

        for empty, average in spar.run_threads(2, train):
            self.assertEqual(empty.coalesce().values().numel(), 0)
            self.assertEqual(average.indices().tolist(), [[3], [2]])
            torch.testing.assert_close(average.values(), torch.full((1, 3), 0.5))


class OptimizerTest(unittest.TestCase):
    def test_steps_without_ddp(self):
        def net(sparse):
            torch.manual_seed(0)
            return torch.nn.Sequential(torch.nn.EmbeddingBag(20, 4, sparse=sparse), torch.nn.Linear(4, 2))

        def batch(rank, step):
            return torch.randint(0, 20, (4, 3), generator=torch.Generator().manual_seed(10 * step + rank))

        nets = [net(sparse=True) for _ in range(2)]  # before the threads, which share torch's generator

        def train(comm):
            unused = torch.nn.Parameter(torch.zeros(3))
            optimizer = torch.optim.SGD([*nets[comm.rank].parameters(), unused], lr=0.1)
            state, _ = spar.torch.ok_topk(comm, 1.0)
            state.attach(optimizer)
            for step in range(3):
                optimizer.zero_grad()
                nets[comm.rank](batch(comm.rank, step)).square().sum().backward()
                optimizer.step()
            self.assertEqual(state.step, 3)

        spar.run_threads(2, train)
        alone = net(sparse=False)
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            (sum(alone(batch(rank, step)).square().sum() for rank in range(2)) / 2).backward()
            optimizer.step()
        for net_of_rank in nets:
            for value, expected in zip(net_of_rank.parameters(), alone.parameters()):
                torch.testing.assert_close(value, expected)


    def test_a_closure_is_refused(self):
        (comm,) = spar.Communicator.threads(1)
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.LBFGS([weight])
        spar.torch.ok_topk(comm, 1.0)[0].attach(optimizer)
        for call in (lambda: optimizer.step(lambda: 1.0), lambda: optimizer.step(closure=lambda: 1.0)):
            with self.assertRaisesRegex(ValueError, "step has a closure"):
                call()
        comm.close()


class LocalStepsTest(unittest.TestCase):
    def train(self, comm, every, outer=None, density=1.0, resumed_before=None):
        def make(weight):
            state, _ = spar.torch.topk(comm, density)
            optimizer = torch.optim.SGD([weight], lr=0.1)
            return optimizer, spar.torch.LocalSteps(optimizer, state, every, outer and outer([weight]))

        weight = torch.nn.Parameter(torch.zeros(64))
        optimizer, local = make(weight)
        seen = []
        for step in range(6):
            if step == resumed_before:
                saved, of = local.state_dict(), torch.nn.Module()
                of.weight = weight
                residuals = local.state.state_dict(of)
                of.weight = weight = torch.nn.Parameter(weight.detach().clone())
                optimizer, local = make(weight)
                local.load_state_dict(saved)
                local.state.load_state_dict(residuals, model=of)
            weight.grad = gradient(comm.rank, step, 64)
            optimizer.step()
            seen.append(weight.detach().clone())
        local.average()
        return seen

    def test_averages_every_h_steps(self):
        results = spar.run_threads(2, lambda comm: self.train(comm, every=3))
        self.assertFalse(torch.equal(results[0][1], results[1][1]))
        expected = torch.zeros(64)
        for step in range(6):
            expected -= 0.1 * mean([gradient(rank, step, 64) for rank in range(2)])
            if step in (2, 5):
                for seen in results:
                    torch.testing.assert_close(seen[step], expected)

    def test_a_checkpoint_between_two_averages(self):
        straight = spar.run_threads(2, lambda comm: self.train(comm, 3, density=0.5))
        for before in (3, 4):
            resumed = spar.run_threads(2, lambda comm: self.train(comm, 3, density=0.5, resumed_before=before))
            for one, other in zip(straight, resumed):
                for expected, value in zip(one, other):
                    self.assertTrue(torch.equal(value, expected))
        local = spar.torch.LocalSteps(
            torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1), spar.torch.Reduction(None, "ring"), every=2
        )
        with self.assertRaisesRegex(ValueError, r"the shapes \[\(3,\)\]; those of the optimizer have \[\(2,\)\]"):
            local.load_state_dict({"steps": 1, "last": [torch.zeros(3)]})

    def test_outer_optimizer(self):
        def outer(parameters):
            return torch.optim.SGD(parameters, lr=0.5, momentum=0.9, nesterov=True)

        results = spar.run_threads(2, lambda comm: self.train(comm, every=3, outer=outer))
        weight = torch.nn.Parameter(torch.zeros(64))
        reference = outer([weight])
        for first in (0, 3):
            weight.grad = 0.1 * mean([sum(gradient(rank, first + i, 64) for i in range(3)) for rank in range(2)])
            reference.step()
            for seen in results:
                torch.testing.assert_close(seen[first + 2], weight.detach())

    def test_two_bits_with_feedback_reach_the_minimum(self):
        text = "select=exact_topk:0.25,store=coo+qsgd:2,by=dsar_split"

        def train(comm):
            target = gradient(7, 0, 64)
            weight = torch.nn.Parameter(torch.zeros(64))
            optimizer = torch.optim.SGD([weight], lr=0.05)
            spar.torch.LocalSteps(optimizer, spar.torch.Reduction(comm, text, decay=0.95), every=2)
            for _ in range(200):
                weight.grad = weight.detach() - target - 0.3 + 0.6 * comm.rank  # the mean has its minimum at target
                optimizer.step()
            return float((weight.detach() - target).norm() / target.norm())

        for distance in spar.run_threads(2, train):
            self.assertLess(distance, 0.2)


if __name__ == "__main__":
    unittest.main()
