# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hook of spar.torch for FSDP2, on four processes: two hosts of two shards."""

import unittest

import torch_ranks as ranks
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import spar.torch


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))


def batch(rank, step):
    return torch.randn(4, 10, generator=torch.Generator().manual_seed(100 * step + rank))


def train(comm):
    import torch.distributed as dist

    hosts = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    replicas = comm.split(comm.rank % 2)  # the ranks with the same shard
    model = net()
    mesh = DeviceMesh.from_group(hosts[comm.rank // 2], "cpu")
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state, _ = spar.torch.ok_topk(replicas, 1.0)
    spar.torch.register_fsdp(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(comm.rank, step)).square().mean().backward()
        optimizer.step()
    saved = state.state_dict(model)
    assert saved["step"] == 2, saved["step"]  # the third step ends with the next backward pass
    assert sorted(saved["residuals"]) == ["fsdp:0", "fsdp:2"], saved["residuals"].keys()
    state.load_state_dict(saved, model=model)
    weights = [p.full_tensor().detach() for p in model.parameters()]
    replicas.close()
    return weights


def train_by_reduce_scatter(comm):
    model = net()
    mesh = DeviceMesh("cpu", list(range(comm.size)))
    calls = []

    class Recording(spar.torch.ReduceScatter):
        def __call__(self, *arguments, **options):
            calls.append(options["op"])
            return super().__call__(*arguments, **options)

    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh).set_custom_reduce_scatter(Recording(comm))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(comm.rank, step)).square().mean().backward()
        optimizer.step()
    assert len(calls) == 6, calls
    return [p.full_tensor().detach() for p in model.parameters()]


class FsdpTest(unittest.TestCase):
    def test_all_entries_give_the_weights_of_one_process(self):
        self.assert_same_as_one_process(ranks.run(4, train))

    def test_reduce_scatter(self):
        self.assert_same_as_one_process(ranks.run(3, train_by_reduce_scatter))

    def assert_same_as_one_process(self, results):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            losses = [model(batch(rank, step)).square().mean() for rank in range(len(results))]
            (sum(losses) / len(losses)).backward()
            optimizer.step()
        for weights in results:
            for value, expected in zip(weights, model.parameters()):
                torch.testing.assert_close(value, expected.detach())


if __name__ == "__main__":
    unittest.main()
