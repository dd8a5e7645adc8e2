# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers and local steps of spar.torch without DDP, among threads."""

import unittest
import warnings

import torch

import spar
import spar.torch


def gradient(rank, step, n):
    return torch.randn(n, generator=torch.Generator().manual_seed(1000 * step + rank))


def mean(tensors):
    return sum(tensors) / len(tensors)


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

    def test_ranks_without_the_gradient_of_a_sparse_embedding(self):
        """In each step, a single rank has a gradient, which for `tied` is sparse or dense."""
        steps = 4

        def gradient_of(step, name):
            value = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
            value[step % 4] = 0
            return value.to_sparse(1) if name == "words" or (name == "tied" and step % 2) else value

        def train(comm):
            of = torch.nn.Module()
            for name in ("words", "tied", "dense", "unused"):
                setattr(of, name, torch.nn.Parameter(torch.zeros(5, 3)))
            optimizer = torch.optim.SGD(of.parameters(), lr=1)
            state, _ = spar.torch.ok_topk(comm, 1.0)
            state.attach(optimizer)
            for step in range(steps):
                optimizer.zero_grad()
                if step % comm.size == comm.rank:
                    for name in ("words", "tied", "dense"):
                        getattr(of, name).grad = gradient_of(step, name)
                optimizer.step()
                self.assertIs(of.words.grad.layout, torch.sparse_coo)
            return {name: p.detach() for name, p in of.named_parameters()}

        for weights in spar.run_threads(3, train):
            self.assertEqual(float(weights.pop("unused").abs().sum()), 0)
            for name, value in weights.items():
                torch.testing.assert_close(value, -sum(gradient_of(step, name).to_dense() for step in range(steps)) / 3)

    def test_a_missing_sparse_gradient_gives_no_warning_of_torch(self):
        def train(comm):
            words = torch.nn.Parameter(torch.zeros(5, 3))
            optimizer = torch.optim.SGD([words], lr=1)
            spar.torch.ok_topk(comm, 1.0)[0].attach(optimizer)
            words.grad = torch.eye(5, 3).to_sparse(1)
            optimizer.step()
            words.grad = None
            optimizer.step()

        self.addCleanup(torch.set_warn_always, torch.is_warn_always_enabled())
        torch.set_warn_always(True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            spar.run_threads(1, train)

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

    def test_parameters_that_are_added_later(self):
        def train(comm, outer):
            weights = [torch.nn.Parameter(torch.zeros(64)) for _ in range(2)]
            optimizer = torch.optim.SGD(weights[:1], lr=0.1)
            outer = torch.optim.SGD(weights, lr=1) if outer else None
            local = spar.torch.LocalSteps(optimizer, spar.torch.topk(comm, 1.0)[0], 3, outer)
            for step in range(6):
                if step == 1:
                    optimizer.add_param_group({"params": weights[1:]})
                for weight in weights:
                    weight.grad = gradient(comm.rank, step, 64)
                optimizer.step()
            self.assertEqual([last.shape for last in local.state_dict()["last"]], [(64,), (64,)])
            return [weight.detach() for weight in weights]

        for outer in (False, True):
            for weights in spar.run_threads(2, lambda comm: train(comm, outer)):
                for weight, first in zip(weights, (0, 1)):
                    moved = mean([sum(gradient(rank, step, 64) for step in range(first, 6)) for rank in range(2)])
                    torch.testing.assert_close(weight, -0.1 * moved)

    def test_an_outer_optimizer_without_a_parameter(self):
        (comm,) = spar.Communicator.threads(1)
        weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
        state, text = spar.torch.topk(comm, 1.0)[0], "outer lacks 1 parameters"
        with self.assertRaisesRegex(ValueError, text):
            spar.torch.LocalSteps(torch.optim.SGD(weights), state, 1, torch.optim.SGD(weights[:1]))
        optimizer = torch.optim.SGD(weights[:1])
        spar.torch.LocalSteps(optimizer, state, 1, torch.optim.SGD(weights[:1]))
        optimizer.add_param_group({"params": weights[1:]})
        with self.assertRaisesRegex(ValueError, text):
            optimizer.step()
        comm.close()

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
