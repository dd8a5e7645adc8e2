# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of spar.torch and their residuals, without DDP, among threads."""

import gc
import threading
import time
import types
import unittest
import weakref

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from values import HAS_HALF

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
            steps(comm, state, of, 1)
            with self.assertRaisesRegex(ValueError, r"model lacks .* shapes are \[\(300,\), \(500,\), \(200,\)\]"):
                state.state_dict(model())
            saved = {"step": 1, "ranks": 1, "residuals": {"a": torch.ones(3)}}
            with self.assertRaisesRegex(ValueError, "residual of a has 3 values; the parameter has 300"):
                state.load_state_dict(saved, model=of)
            saved["residuals"] = {"z": torch.ones(3)}
            with self.assertRaisesRegex(ValueError, "residual z belongs to no parameter"):
                state.load_state_dict(saved, model=of)
            with self.assertRaisesRegex(ValueError, "2 saved states of a job of 1 ranks"):
                state.load_state_dict(saved, saved, model=of)

        spar.run_threads(1, attempt)

    def test_states_do_not_depend_on_wrappers_of_the_model(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.module = torch.nn.Linear(3, 2)  # a name that DDP uses, too
                self.layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))

        def attempt(comm):
            plain = Net()
            weight = plain.layers[1].weight
            state, _ = spar.torch.topk(comm, 0.5)
            state.start(list(plain.parameters()), torch.arange(17.0))
            state.end_step()
            saved = state.state_dict(plain)
            self.assertEqual(list(saved["residuals"]), [name for name, _ in plain.named_parameters()])
            compiled = torch.compile(plain)
            plain.layers[1] = torch.compile(checkpoint_wrapper(plain.layers[1]))
            long = "_orig_mod.layers.1._orig_mod._checkpoint_wrapped_module.weight"
            self.assertIn(long, dict(compiled.named_parameters()))
            again = state.state_dict(compiled)["residuals"]
            self.assertEqual(list(again), list(saved["residuals"]))
            other, _ = spar.torch.topk(comm, 0.5)
            other.load_state_dict(saved, model=compiled)
            self.assertTrue(torch.equal(other._carried[weight], saved["residuals"]["layers.1.weight"]))

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
            for dtype in (torch.float64, *[torch.float16] * HAS_HALF, torch.bfloat16):
                state, _ = spar.torch.ok_topk(comm, 1.0)
                values = gradient(comm.rank, 0).to(dtype)
                state.start([of.a, of.b, of.c], values)
                state.end_step()
                results.append(values)
            return results

        for values in spar.run_threads(2, train)[0]:
            expected = mean([gradient(rank, 0).to(values.dtype).double() for rank in range(2)])
            torch.testing.assert_close(values, expected.to(values.dtype))

    def test_residuals_do_not_depend_on_the_scale_of_the_loss(self):
        def train(comm, make, dtype):
            of = model()
            scale = 1.0
            state = make(comm, lambda: scale)
            sent = torch.zeros(1000, dtype=dtype)
            for step, scale in enumerate((2.0**16, 2.0**17, 3.0, 1.0)):
                values = scale * gradient(comm.rank, step).to(dtype)
                state.start([of.a, of.b, of.c], values)
                state.end_step()
                sent += values / scale
            return sent, all_of(state.state_dict(of)["residuals"])

        given = mean([sum(gradient(rank, step) for step in range(4)) for rank in range(2)])
        for make in (
            lambda comm, scale: spar.torch.ok_topk(comm, 0.05, scale=scale)[0],
            lambda comm, scale: spar.torch.topk(comm, 0.05, exclude=lambda p: p.numel() < 300, scale=scale)[0],
            lambda comm, scale: spar.torch.eager(comm, "everyone", scale=scale)[0],
        ):
            for dtype in (torch.float32, torch.float64):
                results = spar.run_threads(2, lambda comm: train(comm, make, dtype))
                total = results[0][0] + mean([rest for _, rest in results])
                torch.testing.assert_close(total, given.to(dtype), atol=1e-5, rtol=1e-5)

    def test_a_scale_keeps_gradients_that_are_too_small_for_float16(self):
        def train(comm):
            weight = torch.nn.Parameter(torch.zeros(2))
            state, _ = spar.torch.topk(comm, 0.5, scale=lambda: 2.0**16)
            for _ in range(2):  # the second step sends what the first one has kept
                values = torch.tensor([1e-3, 1e-4], dtype=torch.float16)
                state.start([weight], values)
                state.end_step()
            return values

        values = spar.run_threads(1, train)[0]
        torch.testing.assert_close(values, torch.tensor([1e-3, 0], dtype=torch.float16))

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

    def test_least_density(self):
        state, _ = spar.torch.topk(spar.Communicator.threads(1)[0], 1e-10)
        values = torch.tensor([1.0, 3, 2])
        state.start([1], values, [3]).wait()
        self.assertEqual(values.tolist(), [0, 3, 0])

    def test_bad_arguments(self):
        comm = spar.Communicator.threads(1)[0]
        for call, text in (
            (lambda: spar.torch.ok_topk(comm, 0), "density is 0"),
            (lambda: spar.torch.topk(comm, 1.5), "density is 1.5"),
            (lambda: spar.torch.two_shot(comm, 3), "bits is 3; expected 2, 4 or 8"),
            (lambda: spar.torch.topk(comm, decay=2), "decay is 2"),
            (lambda: spar.torch.topk(comm, warmup_steps=-1), "warmup_steps is -1"),
            (lambda: spar.torch.register_fsdp(model(), None), "fully_shard"),
            (lambda: spar.torch.ok_topk(comm, scale=lambda: 0)[0].start([1], torch.ones(2), [2]), "scale is 0.0"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                call()
        values, mesh = torch.ones(2), types.SimpleNamespace(rank=lambda: 1, size=lambda: 2)
        for op, text in (
            (dist.ReduceOp.MAX, "operation is .*MAX.*; expected ReduceOp.SUM or ReduceOp.AVG"),
            (dist.ReduceOp.SUM, "this rank is 1 of the 2 ranks of the mesh, but 0 of the 1 of the communicator"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                spar.torch.ReduceScatter(comm)(values, values, mesh, op)
        layer = torch.nn.Linear(2, 2)
        for exclude, text in ((layer.bias, "Parameter"), (layer, "Linear"), ("bias", "str"), (["bias"], "'bias'")):
            with self.assertRaisesRegex(TypeError, f"exclude has {text}; expected parameters"):
                spar.torch.topk(comm, exclude=exclude)
        with self.assertRaisesRegex(TypeError, "scale is of the type GradScaler; expected a function"):
            spar.torch.topk(comm, scale=torch.amp.GradScaler("cpu"))
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


if __name__ == "__main__":
    unittest.main()
